"""A model from settings."""

from __future__ import annotations

from regard.attention import MultiHead
from regard.models import Recurrent, Transformer
from regard.recipes._mechanisms import looking, normalizer, score
from regard.recipes.translation.settings import Translation


def build(settings: Translation, source_words: int, target_words: int) -> Recurrent | Transformer:
    """The network that the settings describe, for vocabularies of these sizes."""
    if settings.model == "transformer":
        return resting(
            Transformer(
                source_words,
                target_words,
                dim=settings.dim,
                heads=settings.heads,
                layers=settings.layers,
                hidden_dim=settings.hidden_dim or 4 * settings.dim,
                dropout=settings.dropout,
                norm=settings.norm,
                tied=settings.tied,
            )
        )
    ways = 1 + settings.bidirectional
    encoder_dim = settings.encoder_dim or settings.dim // ways
    attention = None
    if settings.scope != "none":
        how = score(settings.score, settings.dim, ways * encoder_dim, settings.dim)
        share = normalizer(settings.normalize)
        attention = looking(settings.scope, how, share, settings.dim, settings.dim, settings.radius)
    return Recurrent(
        source_words,
        target_words,
        attention,
        embed_dim=settings.embed_dim or settings.dim,
        dim=settings.dim,
        encoder_dim=encoder_dim,
        layers=settings.layers,
        cell=settings.cell,
        bidirectional=settings.bidirectional,
        order=settings.order,
        input_feeding=settings.input_feeding,
        dropout=settings.dropout,
        tied=settings.tied != "none",
    )


def resting(model: Transformer) -> Transformer:
    """Biases of keys that no weight shows stay as they begin: so two processes end with the weights of one."""
    for part in model.modules():
        if isinstance(part, MultiHead) and part.key.bias is not None and part.blind_to_key_bias:
            part.key.bias.requires_grad_(False)
    return model
