"""The list itself, room by room."""

from __future__ import annotations

from regard.catalogue._entry import Entry
from regard.catalogue._masks import MASKS
from regard.catalogue._normalizers import NORMALIZERS
from regard.catalogue._others import ADDRESSING, HEADS, POSITIONS, SCOPES
from regard.catalogue._scores import SCORES

ENTRIES: tuple[Entry, ...] = (*SCORES, *NORMALIZERS, *MASKS, *SCOPES, *HEADS, *POSITIONS, *ADDRESSING)
