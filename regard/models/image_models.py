"""Models of images: a convolutional backbone, classification by attention pooling, and visual question answering.

Visual question answering with several attentions one after another: Yang, He, Gao, Deng and Smola (2016), "Stacked
Attention Networks for Image Question Answering", arXiv 1511.02274.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from regard.attention import Attention, AttentionOutput, AttentionPool, MaxPool
from regard.attention.module import Device, Dtype, FactoryKwargs, ResettableModule, reset_modules
from regard.errors import ShapeError, UsageError
from regard.models.layers import FastDropout, Lengths

__all__ = [
    "POSITION_DIM", "STRIDE", "AttentionPoolClassifier", "BagOfWordsEncoder", "ConvBackbone", "GRUEncoder",
    "GridModel", "VQAOutput", "VisualQAModel", "grid_position_encoding",
]  # fmt: skip

STRIDE = 8  # pixels of an image per grid cell, along each axis
Images = Float[Tensor, "batch *image"]
Questions = Int[Tensor, "batch questions tokens"]
QuestionLengths = Int[Tensor, "batch questions"]
AnswerLogits = Float[Tensor, "batch questions answers"]
Tokens = Int[Tensor, "batch tokens"]
NUM_TURNS = (1, 2, 4, 8)  # frequencies of the position encoding, in half turns
POSITION_DIM = 4 * len(NUM_TURNS)  # numbers that encode the position of a cell


class ConvBackbone(ResettableModule):
    """A small convolutional network from pixels to a grid of vectors, one for each 8 x 8 pixels.

        image -> 4 convolutions with batch norm, ReLU and pooling -> 1x1 convolution with positions -> [cell; position]

    The receptive field of a cell is 39 pixels along each axis. The position encoding (`grid_position_encoding`) is an
    input of the last layer and the last part of each vector, so that attention can use it.

    Args:
        in_channels: channels of an image
        feature_dim: size of a cell's vector; more than `POSITION_DIM`
        width: channels of the first convolution
        device, dtype: of the parameters, as in PyTorch

    Shape: (batch, in_channels, height, width) -> (batch, cells, feature_dim), cells row by row

    Example:
        >>> ConvBackbone(in_channels=1, feature_dim=32)(torch.rand(2, 1, 64, 48)).shape
        torch.Size([2, 48, 32])
    """

    repr_settings = ("in_channels", "feature_dim")

    def __init__(
        self,
        in_channels: int = 3,
        feature_dim: int = 128,
        *,
        width: int = 24,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        if feature_dim <= POSITION_DIM:
            raise UsageError(
                f"ConvBackbone: invalid value {feature_dim} for feature_dim: must be more than {POSITION_DIM}, the size"
                " of the position encoding"
            )
        self.in_channels, self.feature_dim = in_channels, feature_dim
        sizes = (in_channels, width, 2 * width, feature_dim, feature_dim)
        kernels, strides, self.pool_sizes = (5, 3, 3, 3), (2, 1, 1, 1), (1, 2, 2, 1)
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        self.layers = nn.ModuleList(
            nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False, **factory)
            for before, after, kernel, stride in zip(sizes, sizes[1:], kernels, strides, strict=False)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(size, **factory) for size in sizes[1:])
        self.out_proj = nn.Conv2d(feature_dim + POSITION_DIM, feature_dim - POSITION_DIM, 1, **factory)
        self._init_parameters()

    def _init_parameters(self) -> None:
        for layer in (*self.layers, self.out_proj):
            nn.init.kaiming_normal_(layer.get_parameter("weight"), nonlinearity="relu")

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch cells feature_dim"]:
        if images.shape[1] != self.in_channels or min(images.shape[2:]) < STRIDE:
            raise ShapeError(
                f"ConvBackbone: images must be (batch, {self.in_channels}, height, width) with at least {STRIDE} pixels"
                f" along each axis, got {tuple(images.shape)}"
            )
        x = images.contiguous(memory_format=torch.channels_last) - 0.5
        for layer, norm, pool_size in zip(self.layers, self.norms, self.pool_sizes, strict=True):
            x = torch.relu(norm(layer(x)))
            # Max pooling, not striding: the features of a digit do not depend on where it is within a cell.
            x = max_pool2d(x, pool_size) if pool_size > 1 else x
        positions = grid_position_encoding(*x.shape[2:]).to(x).expand(len(x), -1, -1, -1)
        features = torch.relu(self.out_proj(torch.cat((x, positions), 1)))
        return torch.cat((features, positions), 1).flatten(2).mT


def grid_position_encoding(height: int, width: int) -> Float[Tensor, "position height width"]:
    """Row and column of each grid cell, as sine and cosine of half a turn, one, two and four turns.

    Args:
        height, width: cells of the grid along each axis

    Returns:
        `POSITION_DIM` numbers for each cell

    Example:
        >>> grid_position_encoding(4, 6).shape
        torch.Size([16, 4, 6])
    """
    axes = ((torch.arange(count) + 0.5) / count for count in (height, width))
    positions = torch.meshgrid(*axes, indexing="ij")
    angles = [turns * math.pi * position for position in positions for turns in NUM_TURNS]
    return torch.stack([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)])


class GridModel(ResettableModule):
    """What the models of image grids share: a backbone, and the size of a grid vector.

    Shape: that of the subclass

    Example:
        >>> class MeanColor(GridModel):
        ...     backbone, feature_dim = None, 3
        >>> MeanColor().encode_image(torch.rand(2, 49, 3)).shape
        torch.Size([2, 49, 3])
    """

    backbone: nn.Module | None
    feature_dim: int

    def encode_image(self, images: Images) -> Float[Tensor, "batch cells feature_dim"]:
        """The grid of each image, cells row by row: the output of `backbone`, or `images` if they are grids already."""
        grid = images if self.backbone is None else self.backbone(images)
        if grid.dim() != 3 or grid.shape[-1] != self.feature_dim:
            raise ShapeError(
                f"{type(self).__name__}: a grid must be (batch, cells, {self.feature_dim}), got {tuple(grid.shape)}"
            )
        return grid


class AttentionPoolClassifier(GridModel):
    """Image classification by attention with learned queries over a grid.

        context_c = attend(query_c, grid)
        logit_c   = w_c . context_c + b_c

    Args:
        num_classes: number of classes
        pool: `AttentionPool` with no query, with one for all classes, or with one for each; or its counterparts
            without attention, `MaxPool()` and `AttentionPool(Attention(Constant()))`, the mean
        backbone: from images to grids, such as `ConvBackbone`; None if the inputs are grids
        feature_dim: size of a grid vector
        dropout: probability of dropout on the contexts
        device, dtype: of the parameters, as in PyTorch; `pool` and `backbone` have their own

    Shape: (batch, *image) -> (batch, num_classes)

    Example:
        >>> pool = AttentionPool(Attention(Additive(None, key_dim=8, hidden_dim=4)))
        >>> model = AttentionPoolClassifier(10, pool, feature_dim=8)
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
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        if pool.num_queries not in (1, num_classes):
            raise UsageError(
                f"AttentionPoolClassifier: pool must have 1 query or one for each of {num_classes} classes, got"
                f" {pool.num_queries}"
            )
        self.feature_dim, self.backbone, self.pool = feature_dim, backbone, pool
        self.classifier = nn.Linear(feature_dim, num_classes, device=device, dtype=dtype)
        self.dropout = FastDropout(dropout)

    def reset_parameters(self) -> None:
        reset_modules(self.pool, self.backbone, self.classifier)

    def forward(self, images: Images) -> Float[Tensor, "batch classes"]:
        """Logits of the classes."""
        context = self.dropout(self.pool(self.encode_image(images))[0])
        if context.shape[1] == 1:
            return self.classifier(context[:, 0])
        return (context * self.classifier.weight).sum(-1) + self.classifier.bias

    def attention_weights(self, images: Images) -> Float[Tensor, "batch queries cells"]:
        """Attention weights of each query over the grid."""
        weights = self.pool(self.encode_image(images), need_weights=True)[1]
        assert weights is not None
        return weights


class VisualQAModel(GridModel):
    """Visual question answering: a question becomes the query of one or more attentions over a grid.

        u_0    = question_encoder(question)
        z_k    = attend_k(u_{k-1}, grid)
        u_k    = tanh(u_{k-1} + W_k z_k)
        logits = V relu(W [z_K; u_K])

    Several questions about each image share its grid.

    Args:
        question_encoder: one vector per question, `BagOfWordsEncoder` or `GRUEncoder`
        attentions: the attentions in order; queries have the size of the encoder's output, keys `feature_dim`.
            `Attention(Constant())` takes the mean of the grid: the same model without attention
        num_answers: number of answers
        backbone: from images to grids, such as `ConvBackbone`; None if the inputs are grids
        feature_dim: size of a grid vector
        dropout: probability of dropout on questions and before the classifier
        device, dtype: of the parameters, as in PyTorch; modules that are passed have their own

    Shape: images (batch, *image), questions (batch, questions, tokens), lengths (batch, questions) ->
        (batch, questions, num_answers)

    Example:
        >>> attention = Attention(Additive(query_dim=16, key_dim=8, hidden_dim=8))
        >>> model = VisualQAModel(BagOfWordsEncoder(20, 16), [attention], 5, feature_dim=8)
        >>> images, questions = torch.rand(2, 49, 8), torch.randint(1, 20, (2, 3, 4))
        >>> model(images, questions, torch.randint(1, 5, (2, 3))).shape
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
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        if not attentions:
            raise UsageError(
                "VisualQAModel: attentions must not be empty; Attention(Constant()) takes the mean of the grid"
            )
        self.feature_dim, self.backbone, self.question_encoder = feature_dim, backbone, question_encoder
        dim = question_encoder.output_dim
        self.attentions = nn.ModuleList(attentions)
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        self.query_updates = nn.ModuleList(nn.Linear(feature_dim, dim, **factory) for _ in attentions)
        self.readout_proj = nn.Linear(feature_dim + dim, dim, **factory)
        self.classifier = nn.Linear(dim, num_answers, **factory)
        self.dropout = FastDropout(dropout)

    def reset_parameters(self) -> None:
        reset_modules(self.question_encoder, self.attentions, self.backbone)
        reset_modules(self.query_updates, self.readout_proj, self.classifier)

    def forward(self, images: Images, questions: Questions, lengths: QuestionLengths) -> AnswerLogits:
        """Logits of the answers."""
        return self.forward_with_attention(images, questions, lengths).logits

    def attention_weights(
        self, images: Images, questions: Questions, lengths: QuestionLengths
    ) -> Float[Tensor, "batch questions attentions cells"]:
        """Weights of each attention over the grid."""
        outputs = self.forward_with_attention(images, questions, lengths).attention
        return torch.stack([output.weights for output in outputs], 2)

    def forward_with_attention(self, images: Tensor, questions: Tensor, lengths: Tensor) -> VQAOutput:
        """The logits of `forward` and the output of each attention."""
        grid, query = self.encode_image(images), self.encode_questions(questions, lengths)
        outputs = []
        for attention, update in zip(self.attentions, self.query_updates, strict=True):
            output = attention(query, grid, grid)
            query = torch.tanh(query + update(output.context))
            outputs.append(output)
        hidden = torch.relu(self.readout_proj(torch.cat((output.context, query), -1)))
        return VQAOutput(self.classifier(self.dropout(hidden)), outputs)

    def encode_questions(self, questions: Questions, lengths: QuestionLengths) -> Float[Tensor, "batch questions dim"]:
        """One vector per question."""
        vectors = self.question_encoder(questions.flatten(0, 1), lengths.flatten())
        return self.dropout(vectors.unflatten(0, lengths.shape))


class BagOfWordsEncoder(ResettableModule):
    """The mean of the vectors of a question's tokens, in any order.

    Args:
        vocab_size: number of tokens
        embed_dim: size of a token's vector and of the output
        device, dtype: of the parameters, as in PyTorch

    Shape: tokens (batch, tokens), lengths (batch,) -> (batch, embed_dim)

    Example:
        >>> BagOfWordsEncoder(20, 6)(torch.randint(1, 20, (2, 4)), torch.tensor([4, 2])).shape
        torch.Size([2, 6])
    """

    def __init__(self, vocab_size: int, embed_dim: int, *, device: Device = None, dtype: Dtype = None):
        super().__init__()
        self.output_dim = embed_dim
        self.embed = nn.Embedding(vocab_size, embed_dim, device=device, dtype=dtype)

    def forward(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "batch dim"]:
        is_token = torch.arange(tokens.shape[1], device=lengths.device) < lengths[:, None]
        return (self.embed(tokens) * (is_token / lengths[:, None])[..., None]).sum(1)


class GRUEncoder(ResettableModule):
    """The state of a GRU after the last token of a question.

    Args:
        vocab_size: number of tokens
        embed_dim: size of a token's vector
        hidden_dim: size of the state and of the output
        device, dtype: of the parameters, as in PyTorch

    Shape: tokens (batch, tokens), lengths (batch,) -> (batch, hidden_dim)

    Example:
        >>> GRUEncoder(20, 6, 8)(torch.randint(1, 20, (2, 4)), torch.tensor([4, 2])).shape
        torch.Size([2, 8])
    """

    def __init__(self, vocab_size: int, embed_dim: int, hidden_dim: int, *, device: Device = None, dtype: Dtype = None):
        super().__init__()
        self.output_dim = hidden_dim
        self.embed = nn.Embedding(vocab_size, embed_dim, device=device, dtype=dtype)
        self.gru = nn.GRU(embed_dim, hidden_dim, batch_first=True, device=device, dtype=dtype)

    def forward(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "batch dim"]:
        states = self.gru(self.embed(tokens))[0]
        return states[torch.arange(len(states), device=states.device), lengths - 1]


class VQAOutput(NamedTuple):
    """Logits of the answers, and the output of each attention.

    Args:
        logits: the logits
        attention: the outputs

    Example:
        >>> VQAOutput(torch.zeros(2, 3, 5), []).logits.shape
        torch.Size([2, 3, 5])
    """

    logits: AnswerLogits
    attention: list[AttentionOutput]
