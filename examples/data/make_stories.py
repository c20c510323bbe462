#!/usr/bin/env python3
"""Writes short stories, one a line, that a very small model can learn from nothing; the same seed writes the same bytes.

  examples/data/make_stories.py OUT.txt [--megabytes 2] [--seed 1]
  examples/data/make_stories.py --tokenizer      needs: pip install tokenizers

Everybody in a story keeps name, kind, home and possessions to its end, so that a model that reads well can tell what
comes next. --tokenizer writes stories_model/tokenizer.json beside itself: byte-level BPE of some 600 tokens, learned on
other stories than seed 1's.
"""
import argparse
import os
import random
import sys

KINDS = {"cat": "purred", "dog": "barked", "fox": "grinned", "hen": "clucked", "owl": "hooted", "frog": "croaked",
         "goat": "bleated", "mouse": "squeaked", "bear": "hummed", "duck": "quacked"}
NAMES = ("Anna Ben Clara Daniel Ella Felix Greta Hugo Ida Jonas Karla Leo Mila Nora Otto Paula Quinn Rosa Simon "
         "Tilda").split()
HOMES = ["an old mill", "a red barn", "a hollow tree", "a small boat", "a house by the sea", "a cave in the hills"]
THINGS = ["a lantern", "a blue kite", "a drum", "a silver key", "a jar of honey", "a map", "a wooden flute", "a rope"]
PLACES = ["the river", "the market", "the old bridge", "the windy hill", "the dark forest", "the lighthouse"]
WEATHER = ["sunny", "foggy", "rainy", "snowy", "stormy", "quiet"]
SIZES = ["small", "large", "clever", "sleepy", "brave", "shy"]
ENDS = ["and they were friends ever after.", "and that was the end of a long day.", "and nobody was afraid any more."]


def the(thing):
    return "the " + thing.split(" ", 1)[1]


def story(rng):
    first, second = rng.sample(NAMES, 2)
    kinds = rng.sample(sorted(KINDS), 2)
    homes, things = rng.sample(HOMES, 2), rng.sample(THINGS, 2)
    sizes, place, weather = rng.sample(SIZES, 2), rng.choice(PLACES), rng.choice(WEATHER)
    text = [f"{first} was a {sizes[0]} {kinds[0]} who lived in {homes[0]}."]
    text.append(f"{first} had {things[0]} and liked it more than anything.")
    text.append(f"One {weather} morning {first} took {the(things[0])} and went to {place}.")
    text.append(f"There sat {second}, a {sizes[1]} {kinds[1]} from {homes[1]}, with {things[1]}.")
    talk = [f'"Is that {things[0]}?" {KINDS[kinds[1]]} {second} the {kinds[1]}.',
            f'"It is," {KINDS[kinds[0]]} {first} the {kinds[0]}.']
    if rng.random() < 0.5:
        talk.append(f'"And I have {things[1]}," said {second}.')
    if rng.random() < 0.4:
        talk.append(f'"What a {weather} day it is at {place}," said {rng.choice([first, second])}.')
    text += talk
    turn = rng.random()
    if turn < 0.4:
        text.append(f"So {first} gave {second} {the(things[0])}, and {second} gave {first} {the(things[1])}.")
        text.append(f"Now {first} had {things[1]}, and {second} had {things[0]},")
    elif turn < 0.7:
        text.append(f"Then {the(things[1])} of {second} fell into the water, and {first} fetched it with a long stick,")
    else:
        text.append(f"They walked home to {homes[0]} together, with {the(things[0])} and {the(things[1])},")
    text.append(rng.choice(ENDS))
    return " ".join(text)


def stories(seed, size):
    """At least `size` bytes of them."""
    rng = random.Random(seed)
    lines, written = [], 0
    while written < size:
        lines.append(story(rng))
        written += len(lines[-1].encode()) + 1
    return lines


def write_tokenizer(path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=640, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(stories(99, 1 << 20), trainer)
    tokenizer.save(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?")
    parser.add_argument("--megabytes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokenizer", action="store_true")
    args = parser.parse_args()
    if args.tokenizer:
        write_tokenizer(os.path.join(os.path.dirname(os.path.abspath(__file__)), "stories_model", "tokenizer.json"))
    if args.out:
        with open(args.out, "w", encoding="utf-8", newline="\n") as file:
            file.write("\n".join(stories(args.seed, args.megabytes * 1e6)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
