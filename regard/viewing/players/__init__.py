"""Players: attention to step through, each one HTML file that needs no network, no server and no notebook.

    translation    a translation as it was searched and written, word by word
    walk           one layer of self-attention with its matrices, operation by operation
    tape           a memory with its read and write heads, moment by moment
    heads          every head of every layer as a thumbnail, and one of them large
    document       a document that was read, its sentences and words lit by their weights
    caption        an image and what was said of it, lit where each word looked

Each takes plain data, tensors and strings, and returns a `Player`: `.save("x.html")`, `.html`, or as the last
line of a notebook's cell.
"""

from regard.viewing.players._player import Player as Player
from regard.viewing.players.caption import caption as caption
from regard.viewing.players.document import document as document
from regard.viewing.players.heads import heads as heads
from regard.viewing.players.tape import Tape as Tape
from regard.viewing.players.tape import tape as tape
from regard.viewing.players.translation import Decoded as Decoded
from regard.viewing.players.translation import Node as Node
from regard.viewing.players.translation import Option as Option
from regard.viewing.players.translation import Sentence as Sentence
from regard.viewing.players.translation import translation as translation
from regard.viewing.players.walk import Walk as Walk
from regard.viewing.players.walk import walk as walk
