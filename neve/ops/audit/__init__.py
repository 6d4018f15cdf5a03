"""The audit behind `verify`: what each part of a table promises, checked part by part."""
