"""Every value of a table is plain text on a page."""

from __future__ import annotations

from html import unescape

from hypothesis import given
from hypothesis import strategies as st

from neve.display.html import Markup, escape, join_markup, replace_unprintable, shorten_middle, tag
from tests.support.html_pages import Reading

TEXT = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(
    ["<script>", "'\"><b", "&lt;", "\x00", "\ud800"]
)


@given(TEXT)
def test_escaped_text_is_the_text_again_when_it_is_read(text: str):
    escaped = escape(text)
    assert not set("<>\"'`") & set(escaped)
    assert unescape(escaped) == replace_unprintable(text)
    assert isinstance(escaped.encode(), bytes)  # a lone surrogate is no text


@given(TEXT, TEXT)
def test_elements_hold_what_they_were_given_and_nothing_else(text: str, value: str):
    reading = Reading.of(tag("p", text, title=value))
    assert reading.elements == [("p", {"title": replace_unprintable(value)})]
    assert "".join(reading.texts.get("p", [])) == replace_unprintable(text)


def test_characters_without_a_shape_become_visible():
    assert replace_unprintable("a\x00b\x1b\u202ec\u2066\u200f\ufeff\u2028") == "a�b��c����"
    assert replace_unprintable("naïve 表 שלום\u3000\u00a0") == "naïve 表 שלום\u3000\u00a0"


def test_html_is_escaped_once():
    assert escape(escape("<")) == "&lt;"
    assert tag("p", tag("b", "<")) == "<p><b>&lt;</b></p>"
    assert isinstance(join_markup(["<", Markup("<br>")]), Markup)
    assert join_markup(["<", Markup("<br>")]) == "&lt;<br>"


def test_attributes_that_say_nothing_are_left_out():
    assert tag("td", data_v=0, class_=None, hidden=True, disabled=False) == '<td data-v="0" hidden></td>'


@given(st.text("abxé表", max_size=80), st.integers(2, 60))
def test_names_are_cut_in_the_middle(text: str, longest: int):
    short = shorten_middle(text, longest)
    assert len(short) <= longest or short == text
    assert short == text or (short[0] == text[0] and "…" in short)
