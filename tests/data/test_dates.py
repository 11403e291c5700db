"""Dates: equal to Babel's, unambiguous, with correct links and splits."""

import random
import time
import unicodedata
from collections import defaultdict
from datetime import date, timedelta

import pytest

from regard.data.date_formats import LANGUAGE_CODES, digit_value, formats_of, get_locale, normalize_text
from regard.data.dates import (
    SCORED_POSITIONS,
    Dates,
    all_formats,
    find_ambiguous,
    held_out_patterns,
    list_languages,
    possible_dates,
    split_of,
    text_shape,
)

babel_dates = pytest.importorskip("babel.dates")

# Every month, every weekday, days of one digit and of two, both centuries.
DAYS = [date(1987 + 3 * month, month, 1 + (11 * month) % 28) for month in range(1, 13)]
DAYS += [date(2009, 9, 7) + timedelta(days) for days in range(7)]


def values(day):
    return 0, day.year - 1950, day.month - 1, day.day - 1, day.weekday()


def text_without_tag(date_format, day):
    """The text of a date without its tag."""
    return date_format.write(values(day)).text.partition("> ")[2 if date_format.is_tagged else 0]


def find_format(language, pattern, style="plain"):
    [date_format] = [
        date_format
        for date_format in all_formats()
        if (date_format.language, date_format.pattern, date_format.style) == (language, pattern, style)
    ]
    return date_format


@pytest.mark.parametrize("code", LANGUAGE_CODES)
def test_every_pattern_matches_babel(code):
    formats = [
        date_format for date_format in all_formats() if date_format.language == code and date_format.style == "plain"
    ]
    assert len(formats) >= 4
    for date_format in formats:
        for day in DAYS:
            expected = babel_dates.format_date(day, format=date_format.pattern, locale=get_locale(code))
            assert text_without_tag(date_format, day) == normalize_text(expected)


def test_native_digits():
    styles = set()
    for date_format in all_formats():
        if date_format.style not in ("plain", "lower", "upper", "capital", "hanidec"):
            styles.add(date_format.style)
            text = "".join(str(unicodedata.decimal(sign, sign)) for sign in text_without_tag(date_format, DAYS[4]))
            assert text == text_without_tag(find_format(date_format.language, date_format.pattern), DAYS[4])
    assert {"arab", "arabext", "beng", "deva", "tamldec", "telu", "thai"} == styles


@pytest.mark.parametrize(
    ("day", "text"),
    [
        (date(2010, 5, 3), "二〇一〇年五月三日"),
        (date(1999, 12, 25), "一九九九年十二月二十五日"),
        (date(2000, 10, 10), "二〇〇〇年十月十日"),
        (date(2011, 11, 30), "二〇一一年十一月三十日"),
    ],
)
def test_numbers_in_han_characters(day, text):
    assert find_format("zh", "y年M月d日", "hanidec").write(values(day)).text == text


@pytest.mark.parametrize(
    ("language", "pattern", "style", "text"),
    [
        ("de", "EEEE, d. MMMM y", "lower", "montag, 3. mai 2010"),
        ("es", "EEEE, d 'de' MMMM 'de' y", "upper", "LUNES, 3 DE MAYO DE 2010"),
        ("fr", "EEEE d MMMM y", "capital", "Lundi 3 Mai 2010"),
        ("tr", "d MMMM y EEEE", "upper", "3 MAYIS 2010 PAZARTESİ"),
        ("el", "EEEE d MMMM y", "upper", "ΔΕΥΤΕΡΑ 3 ΜΑΪΟΥ 2010"),
    ],
)
def test_letter_styles(language, pattern, style, text):
    assert find_format(language, pattern, style).write(values(date(2010, 5, 3))).text == text


def test_texts_have_no_invisible_characters():
    for date_format in all_formats():
        text = date_format.write(values(DAYS[0])).text
        assert not any(unicodedata.category(sign) in ("Cc", "Cf") for sign in text.replace("\u200c", ""))
        assert not any(sign.isspace() and sign != " " for sign in text)


def test_names_do_not_leak_from_one_language_into_another():
    before = [text_without_tag(date_format, DAYS[0]) for date_format in formats_of("fi")]
    babel_dates.format_date(DAYS[0], "LLLL cccc", locale="he")  # python-babel issue 1234
    formats_of.cache_clear()
    assert [text_without_tag(date_format, DAYS[0]) for date_format in formats_of("fi")] == before


# Ambiguity.


@pytest.fixture(scope="module")
def meanings():
    """The dates of each text without its tag, and of each complete text, over all patterns of all languages."""
    bodies, texts = defaultdict(set), defaultdict(set)
    days = [date(year, month, day) for year in (2003, 2010) for month in range(1, 13) for day in (1, 3, 7, 10, 11, 12)]
    for date_format in all_formats():
        for day in days:
            text = date_format.write(values(day)).text
            texts[text].add(day)
            bodies[text.partition("> ")[2] if date_format.is_tagged else text].add(day)
    return bodies, texts


def test_a_text_without_a_tag_has_one_reading_in_every_language(meanings):
    bodies, texts = meanings
    untagged = [text for text in texts if not text.startswith("<")]
    assert len(untagged) > 50_000
    assert [text for text in untagged if len(bodies[text]) > 1] == []


def test_a_text_with_a_tag_has_one_reading(meanings):
    assert [text for text, days in meanings[1].items() if len(days) > 1] == []


def test_tags_are_required(meanings):
    bodies, _ = meanings
    assert bodies["3/7/2010"] == {date(2010, 3, 7), date(2010, 7, 3)}
    assert bodies["10/3/10"] == {date(2010, 3, 10), date(2010, 10, 3)}
    assert find_format("pl", "d MMMM y").is_tagged  # listopada: November in Polish, October in Croatian
    assert find_format("hr", "d. MMMM y.").is_tagged
    assert not find_format("de", "d. MMMM y").is_tagged
    assert all(date_format.is_tagged for date_format in all_formats() if date_format.has_short_year)


def test_possible_dates_cover_all_texts():
    rng = random.Random(0)
    for date_format in all_formats():
        if not date_format.is_tagged:
            outlines = dict(possible_dates(date_format))
            for _ in range(5):
                day = date(1950, 1, 1) + timedelta(rng.randrange(36524))
                assert text_shape(date_format.write(values(day)).text) in outlines


def test_find_ambiguous():
    english, british = find_format("en", "MMMM d, y"), find_format("en-GB", "d MMMM y")
    assert find_ambiguous([english, british]) == set()
    every = [date_format for code in ("en", "en-GB") for date_format in formats_of(code)]
    assert {("en", "M/d/y"), ("en-GB", "dd/MM/y")} <= find_ambiguous(
        date_format for date_format in every if not date_format.has_short_year
    )


# Links.


@pytest.fixture(scope="module")
def pairs():
    return [pair for split in ("train", "valid", "test", "patterns") for pair in Dates(1, split).eval_set(1500)]


def test_sure_links_join_equal_digits_and_are_possible(pairs):
    for pair in pairs:
        assert set(pair.sure_links) <= set(pair.possible_links)
        for i, j in pair.sure_links:
            assert digit_value(pair.source[i]) == int(pair.target[j])


def test_exactly_the_digits_have_possible_links(pairs):
    for pair in pairs:
        assert {j for _, j in pair.possible_links} == set(SCORED_POSITIONS)
        assert [pair.target[j] for j in range(10) if j not in SCORED_POSITIONS] == ["-", "-"]


def is_padding_zero(pair, i, j):
    """Whether a link joins the 0 that ISO adds to a single digit with the character before that digit."""
    return (
        j in (5, 8)
        and pair.target[j] == "0"
        and (i + 1, j + 1) in pair.sure_links
        and (i, j + 1) not in pair.possible_links
    )


def test_tags_spaces_and_other_fields_have_no_links(pairs):
    for pair in pairs:
        tag = pair.source.find("> ") + 1
        fields = defaultdict(set)
        for i, j in pair.possible_links:
            assert tag <= i < len(pair.source)
            if is_padding_zero(pair, i, j):
                continue
            assert not pair.source[i].isspace()
            fields[i].add("yyyy-mm-dd"[j])
        assert all(len(group) == 1 for group in fields.values())


def test_sure_links_are_one_to_one(pairs):
    for pair in pairs:
        assert len({i for i, _ in pair.sure_links}) == len({j for _, j in pair.sure_links}) == len(pair.sure_links)


@pytest.mark.parametrize(
    ("date_format", "day", "sure", "possible_texts"),
    [  # possible_texts: the source characters with possible links to the month and to the day
        (("de", "EEEE, d. MMMM y", "plain"), date(2010, 5, 3), "8>9 17>2 18>3", ("Mai", "3 ")),
        (("zh", "y年M月d日", "plain"), date(2010, 11, 3), "2>2 3>3 5>5 6>6 8>9", ("11月", "3月日")),
        (("ko", "y년 MMMM d일", "plain"), date(2010, 5, 12), "2>2 3>3 6>6 9>8 10>9", ("5월 ", "12일")),
        (("en", "M/d/yy", "plain"), date(1998, 5, 31), "5>6 7>8 8>9 10>2 11>3", ("5 ", "31")),
        (("he", "d בMMMM y", "plain"), date(2010, 5, 3), "0>9 9>2 10>3", ("במאי", "3")),
    ],
)
def test_links_of_known_dates(date_format, day, sure, possible_texts):
    text, links, possible = find_format(*date_format).write(values(day))
    assert " ".join(f"{i}>{j}" for i, j in links) == sure
    for column, expected in zip((5, 8), possible_texts, strict=True):
        assert "".join(text[i] for i, j in possible if j == column) == expected


def alignment_error(pair, links):
    """1 - (|A & S| + |A & P|) / (|A| + |S|), Och and Ney (2003), over the digits."""
    sure, possible = set(pair.sure_links), set(pair.possible_links)
    return 1 - (len(links & sure) + len(links & possible)) / (len(links) + len(sure))


def test_alignment_error_of_links(pairs):
    for pair in pairs:
        best = {j: i for i, j in pair.possible_links} | {j: i for i, j in pair.sure_links}
        assert alignment_error(pair, {(i, j) for j, i in best.items()}) == 0
    diagonal = [alignment_error(p, {(j * (len(p.source) - 1) // 9, j) for j in SCORED_POSITIONS}) for p in pairs]
    assert sum(diagonal) / len(pairs) > 0.4


# Splits.


def test_dates_and_years_are_held_out():
    dates = {split: {iso for _, iso in Dates(split=split).dates} for split in ("train", "valid", "test")}
    assert sum(map(len, dates.values())) == len(set.union(*dates.values())) == 36525
    years = {split: {iso[:4] for iso in group} for split, group in dates.items()}
    for split, others in (("valid", ("train", "test")), ("test", ("train", "valid"))):
        own_years = years[split].difference(*(years[other] for other in others))
        share = sum(iso[:4] in own_years for iso in dates[split]) / len(dates[split])
        assert len(own_years) >= 5
        assert 0.4 < share < 0.6
        assert {iso[:2] for iso in own_years} == {"19", "20"}


@pytest.mark.parametrize("split", ["train", "valid", "test", "patterns"])
def test_pairs_are_of_their_split(split):
    for pair in Dates(split=split).eval_set(500):
        assert split_of(date.fromisoformat(pair.target)) == ("test" if split == "patterns" else split)


def test_held_out_patterns_are_never_in_training():
    def used(split):
        return {(f.language, f.pattern) for group in Dates(split=split).formats for styles in group for f in styles}

    assert used("patterns") == held_out_patterns()
    assert used("train") == used("valid") == used("test")
    assert used("train") & held_out_patterns() == set()
    assert len(held_out_patterns()) > 40
    assert len(used("train")) > 300


def test_most_texts_of_held_out_patterns_are_new():
    others = [
        date_format
        for date_format in all_formats()
        if (date_format.language, date_format.pattern) not in held_out_patterns()
    ]
    other_texts = {date_format.write(values(day)).text for date_format in others for day in DAYS}
    for language, pattern in held_out_patterns():
        texts = [find_format(language, pattern).write(values(day)).text for day in DAYS]
        assert sum(text in other_texts for text in texts) < len(texts) / 2


# The class.


def test_list_languages():
    names = {language.code: language for language in list_languages()}
    assert len(names) >= 40
    assert {"zh", "zh-Hant", "ja", "ko", "ar", "hi", "th", "ru", "en", "en-GB"} <= set(names)
    assert (names["zh-Hant"].english, names["ja"].native) == ("Chinese (Traditional)", "日本語")


def test_the_same_seed_gives_the_same_pairs():
    assert Dates(3, "valid").eval_set(50) == Dates(3, "valid").eval_set(50) != Dates(4, "valid").eval_set(50)
    first, second = (Dates().sample(random.Random(7), 50) for _ in range(2))
    assert first == second
    assert Dates(3, "valid").eval_set(20) == Dates(3, "valid").eval_set(50)[:20]


def test_languages_are_uniform():
    dates = Dates(languages=["ko", "zh"])
    korean = sum("년" in pair.source or ". " in pair.source for pair in dates.eval_set(4000))
    assert 1800 < korean < 2200


def test_languages_option():
    assert all("日" in pair.source or "/" in pair.source for pair in Dates(languages=["ja"]).eval_set(200))


@pytest.mark.bare
def test_invalid_arguments():
    with pytest.raises(ValueError, match="no language 'en-Gb'; did you mean en-GB"):
        Dates(languages=["en-Gb"])
    with pytest.raises(ValueError, match="at least one language"):
        Dates(languages=[])
    with pytest.raises(ValueError, match="no split 'tests'; did you mean test"):
        Dates(split="tests")
    without_held_out = next(
        code for code in LANGUAGE_CODES if code not in {language for language, _ in held_out_patterns()}
    )
    with pytest.raises(ValueError, match=f"no pattern of {without_held_out} is held out"):
        Dates(split="patterns", languages=[without_held_out])


@pytest.mark.bare
@pytest.mark.slow
def test_twenty_thousand_pairs_a_second():
    dates, rng = Dates(), random.Random(0)
    start = time.process_time()
    dates.sample(rng, 20_000)
    assert time.process_time() - start < 1
