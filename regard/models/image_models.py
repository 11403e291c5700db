"""A small convolutional network that turns an image into a grid of vectors to look at.

An image put into a class by one glance at a grid of it: a learned query says what to look for.

Read top to bottom: the model, the glance, and what can take its place.

A question about an image, read into the query that looks for its answer.

Several looks one after another, each asked by what is known so far, are those of Yang, He, Gao, Deng and Smola (2016),
"Stacked Attention Networks for Image Question Answering", arXiv 1511.02274.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from regard.attention import Attention, AttentionOutput
from regard.attention.pooling import AttentionPool, MaxPool
from regard.errors import ShapeError, UsageError
from regard.models.layers import FastDropout

STRIDE = 8  # pixels of an image that make one cell, along each axis


NUM_TURNS = (1, 2, 4, 8)  # halves of a turn


POSITION_DIM = 4 * len(NUM_TURNS)  # numbers that say where a cell is


class ConvBackbone(nn.Module):
    """From pixels to a grid, one vector for each 8 by 8 pixels.

        image -> 4 convolutions with norms, rectifiers, pools -> 1 that knows where a cell is -> [cell; where it is]

    What a cell says knows what surrounds it (39 pixels along each axis) and where it is: its row and column are waves
    (`where`), given to the last layer and kept as the last numbers of the vector, so that an order in space can be
    told from the vectors alone.

    >>> ConvBackbone(in_channels=1, feature_dim=32)(torch.rand(2, 1, 64, 48)).shape
    torch.Size([2, 48, 32])
    """

    def __init__(self, in_channels: int = 3, feature_dim: int = 128, width: int = 24):
        super().__init__()
        if feature_dim <= POSITION_DIM:
            raise UsageError(
                f"dim={feature_dim} is too small: {POSITION_DIM} numbers of a cell say where it is"
            )
        self.in_channels, self.feature_dim = in_channels, feature_dim
        sizes = (in_channels, width, 2 * width, feature_dim, feature_dim)
        kernels, strides, self.pool_sizes = (5, 3, 3, 3), (2, 1, 1, 1), (1, 2, 2, 1)
        self.layers = nn.ModuleList(
            nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)
            for before, after, kernel, stride in zip(sizes, sizes[1:], kernels, strides, strict=False)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(size) for size in sizes[1:])
        self.out_proj = nn.Conv2d(feature_dim + POSITION_DIM, feature_dim - POSITION_DIM, 1)
        for layer in (*self.layers, self.out_proj):
            nn.init.kaiming_normal_(layer.get_parameter("weight"), nonlinearity="relu")

    def forward(self, images: Float[Tensor, "rows channels height width"]) -> Float[Tensor, "rows cells dim"]:
        if images.shape[1] != self.in_channels or min(images.shape[2:]) < STRIDE:
            raise ShapeError(
                f"this network takes images (rows, {self.in_channels}, height, width) of {STRIDE} pixels or more, got"
                f" {tuple(images.shape)}"
            )
        seen = images.contiguous(memory_format=torch.channels_last) - 0.5
        for layer, norm, pool in zip(self.layers, self.norms, self.pool_sizes, strict=True):
            seen = torch.relu(norm(layer(seen)))
            # the largest of four, not every other one: a digit looks the same wherever it stands in a cell
            seen = max_pool2d(seen, pool) if pool > 1 else seen
        places = grid_position_encoding(*seen.shape[2:]).to(seen).expand(len(seen), -1, -1, -1)
        said = torch.relu(self.out_proj(torch.cat((seen, places), 1)))
        return torch.cat((said, places), 1).flatten(2).mT


def grid_position_encoding(height: int, width: int) -> Float[Tensor, "place down across"]:
    """The row and the column of each cell of a grid, as sine and cosine of half, one, two and four turns.

    >>> grid_position_encoding(4, 6).shape
    torch.Size([16, 4, 6])
    """
    y, x = ((torch.arange(count) + 0.5) / count for count in (height, width))
    angles = [
        turns * math.pi * part
        for part in (y[:, None].expand(height, width), x.expand(height, width))
        for turns in NUM_TURNS
    ]
    return torch.stack([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)])


class AttentionPoolClassifier(nn.Module):
    """Sees a grid of vectors, and says to which class it belongs.

        context_c = attend(query_c, grid)
        score_c   = w_c . context_c + b_c

    `pool` makes the contexts: `Look(attention)` has one query for all classes, or one for each of them, or none;
    `Largest()` takes the maximum of the grid instead, and `Look(Attention(Constant()))` its mean. `eyes` make the
    grid of an image, such as `Convolutions`; without them the pictures are grids already.

    >>> pool = AttentionPool(Attention(Additive(None, key_dim=8, hidden_dim=4)))
    >>> model = AttentionPoolClassifier(num_classes=10, pool=pool, feature_dim=8)
    >>> model(torch.rand(2, 49, 8)).shape, model.attention_weights(torch.rand(2, 49, 8)).shape
    (torch.Size([2, 10]), torch.Size([2, 1, 49]))
    """

    def __init__(
        self,
        num_classes: int,
        pool: AttentionPool | MaxPool,
        *,
        backbone: nn.Module | None = None,
        feature_dim: int = 96,
        dropout: float = 0.0,
    ):
        super().__init__()
        if pool.num_queries not in (1, num_classes):
            raise UsageError(
                f"a glance has one query, or one for each of {num_classes} classes, not {pool.num_queries}"
            )
        self.feature_dim, self.backbone, self.pool = feature_dim, backbone, pool
        self.classifier = nn.Linear(feature_dim, num_classes)
        self.dropout = FastDropout(dropout)

    def forward(self, images: Float[Tensor, "rows *picture"]) -> Float[Tensor, "rows classes"]:
        """The scores of each class, before any softmax."""
        seen = self.dropout(self.pool(self.encode_image(images)))
        if seen.shape[1] == 1:
            return self.classifier(seen[:, 0])
        return (seen * self.classifier.weight).sum(-1) + self.classifier.bias

    def attention_weights(
        self, images: Float[Tensor, "rows *picture"]
    ) -> Float[Tensor, "rows queries cells"]:
        """Where each query looked."""
        return self.pool.attention_weights(self.encode_image(images))

    def encode_image(self, images: Float[Tensor, "rows *picture"]) -> Float[Tensor, "rows cells grid"]:
        """The vectors of the cells, row by row."""
        grid = images if self.backbone is None else self.backbone(images)
        if grid.dim() != 3 or grid.shape[-1] != self.feature_dim:
            raise ShapeError(f"a grid is (rows, cells, {self.feature_dim}) here, got {tuple(grid.shape)}")
        return grid


class VisualQAModel(nn.Module):
    """Reads a question, looks at a grid of vectors, and chooses one of the known answers.

        u_0 = read(question)
        z_k = attend_k(u_{k-1}, grid)                   a look
        u_k = tanh(u_{k-1} + W_k z_k)                   what is known after it
        answer scores = V relu(W [z_K; u_K])

    `read` makes one vector of a question: `Bag` or `InOrder`. `looks` are the attentions of the looks, in order, asked
    with vectors of its size; that of the score `Constant`,
    which sees the mean of the grid, is no attention at all. `eyes` make the grid of an image, such as `Convolutions`;
    without them the pictures are grids already. Of each picture, several questions can be asked at once.

    >>> look = Attention(Additive(query_dim=16, key_dim=8, hidden_dim=8))
    >>> model = VisualQAModel(BagOfWordsEncoder(vocab_size=20, embed_dim=16), attentions=[look], num_answers=5, feature_dim=8)
    >>> pictures, questions = torch.rand(2, 49, 8), torch.randint(1, 20, (2, 3, 4))
    >>> model(pictures, questions, torch.randint(1, 5, (2, 3))).shape
    torch.Size([2, 3, 5])
    """

    def __init__(
        self,
        question_encoder: BagOfWordsEncoder | GRUEncoder,
        attentions: Sequence[Attention],
        num_answers: int,
        *,
        backbone: nn.Module | None = None,
        feature_dim: int = 96,
        dropout: float = 0.0,
    ):
        super().__init__()
        if not attentions:
            raise UsageError(
                "an answerer looks at least once; Attention(Constant()) sees the mean of the grid"
            )
        self.feature_dim, self.backbone, self.question_encoder, dim = (
            feature_dim,
            backbone,
            question_encoder,
            question_encoder.output_dim,
        )
        self.attentions = nn.ModuleList(attentions)
        self.query_updates = nn.ModuleList(nn.Linear(feature_dim, dim) for _ in attentions)
        self.readout_proj = nn.Linear(feature_dim + dim, dim)
        self.classifier = nn.Linear(dim, num_answers)
        self.dropout = FastDropout(dropout)

    def forward(
        self,
        images: Float[Tensor, "rows *picture"],
        questions: Int[Tensor, "rows asked words"],
        lengths: Int[Tensor, "rows asked"],
    ) -> Float[Tensor, "rows asked answers"]:
        """The scores of each answer, before any softmax."""
        return self.forward_with_attention(images, questions, lengths).logits

    def attention_weights(
        self,
        images: Float[Tensor, "rows *picture"],
        questions: Int[Tensor, "rows asked words"],
        lengths: Int[Tensor, "rows asked"],
    ) -> Float[Tensor, "rows asked looks cells"]:
        """Where each look fell."""
        return torch.stack(
            [look.weights for look in self.forward_with_attention(images, questions, lengths).attention], 2
        )

    def forward_with_attention(self, images: Tensor, questions: Tensor, lengths: Tensor) -> VQAOutput:
        """`forward`, together with the looks."""
        grid, known = self.encode_image(images), self.encode_questions(questions, lengths)
        seen = []
        for attention, join in zip(self.attentions, self.query_updates, strict=True):
            look = attention(known, grid, grid)
            known = torch.tanh(known + join(look.context))
            seen.append(look)
        told = torch.relu(self.readout_proj(torch.cat((look.context, known), -1)))
        return VQAOutput(self.classifier(self.dropout(told)), seen)

    def encode_questions(
        self, questions: Int[Tensor, "rows asked words"], lengths: Int[Tensor, "rows asked"]
    ) -> Float[Tensor, "rows asked dim"]:
        """What each question asks for."""
        found = self.question_encoder(questions.flatten(0, 1), lengths.flatten())
        return self.dropout(found.unflatten(0, lengths.shape))

    def encode_image(self, images: Float[Tensor, "rows *picture"]) -> Float[Tensor, "rows cells grid"]:
        """The vectors of the cells, row by row."""
        grid = images if self.backbone is None else self.backbone(images)
        if grid.dim() != 3 or grid.shape[-1] != self.feature_dim:
            raise ShapeError(f"a grid is (rows, cells, {self.feature_dim}) here, got {tuple(grid.shape)}")
        return grid


class BagOfWordsEncoder(nn.Module):
    """One vector for each question: the mean of those of its words, in whatever order they stand."""

    def __init__(self, vocab_size: int, embed_dim: int):
        super().__init__()
        self.output_dim, self.embed = embed_dim, nn.Embedding(vocab_size, embed_dim)

    def forward(
        self, tokens: Int[Tensor, "rows words"], lengths: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows dim"]:
        inside = torch.arange(tokens.shape[1], device=lengths.device) < lengths[:, None]
        return (self.embed(tokens) * (inside / lengths[:, None])[..., None]).sum(1)


class GRUEncoder(nn.Module):
    """One vector for each question: the state of a GRU after its last word."""

    def __init__(self, vocab_size: int, embed_dim: int, hidden_dim: int):
        super().__init__()
        self.output_dim, self.embed = hidden_dim, nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim, hidden_dim, batch_first=True)

    def forward(
        self, tokens: Int[Tensor, "rows words"], lengths: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows dim"]:
        states = self.gru(self.embed(tokens))[0]
        return states[torch.arange(len(states), device=states.device), lengths - 1]


class VQAOutput(NamedTuple):
    """The scores of the answers, and the looks before them."""

    logits: Float[Tensor, "rows asked answers"]
    attention: list[AttentionOutput]
