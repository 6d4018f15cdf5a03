"""Operations on tables; each verb has a module of its own, on the skeleton of `neve.ops.verb`."""
