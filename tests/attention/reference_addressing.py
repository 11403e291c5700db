"""The functions of addressing as loops over numbers: one batch entry, nested lists in and out."""

import math


def content(key, memory, strength):
    def cosine(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))

    weights = []
    for k, beta in zip(key, strength, strict=True):
        powers = [math.exp(beta * cosine(k, row)) for row in memory]
        weights.append([power / sum(powers) for power in powers])
    return weights


def interpolate(weights, previous, gate):
    return [
        [g * new + (1 - g) * old for new, old in zip(w, p, strict=True)]
        for w, p, g in zip(weights, previous, gate, strict=True)
    ]


def shift(weights, offsets):
    moved = []
    for w, s in zip(weights, offsets, strict=True):
        radius, target = len(s) // 2, [0.0] * len(w)
        for j, weight in enumerate(w):
            for at, share in enumerate(s):
                target[(j + at - radius) % len(w)] += weight * share
        moved.append(target)
    return moved


def sharpen(weights, sharpness):
    return [[x**gamma / sum(y**gamma for y in w) for x in w] for w, gamma in zip(weights, sharpness, strict=True)]


def address(key, strength, gate, offsets, sharpness, memory, previous):
    weights = interpolate(content(key, memory, strength), previous, gate)
    return sharpen(shift(weights, offsets), sharpness)


def read(weights, memory):
    return [[sum(w[i] * memory[i][at] for i in range(len(memory))) for at in range(len(memory[0]))] for w in weights]


def write(memory, weights, erase, add):
    memory = [list(row) for row in memory]
    for i, row in enumerate(memory):
        for at in range(len(row)):
            for w, e in zip(weights, erase, strict=True):
                row[at] *= 1 - w[i] * e[at]
        for at in range(len(row)):
            for w, a in zip(weights, add, strict=True):
                row[at] += w[i] * a[at]
    return memory
