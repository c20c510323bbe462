#!/usr/bin/env python3
"""Writes tests/fixtures/chat: a tiny Qwen3 that was taught one conversation, and what transformers has it answer.

    python tests/make/chat_turns.py

turns.json: for each turn the user's words, the greedy answer (its tokens decoded), and that answer's reasoning and
content as Qwen3's template parts them, by which the next prompt is rendered; "prompt" counts the tokens of that prompt.
The tokenizer has a token for each byte. Answers are those of float32 on the weights as they are stored, in bfloat16.
"""
import json
import pathlib

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
OUTPUT = FIXTURES / "chat"
SYSTEM = "Be kind."
TAUGHT = [
    ("Hi", "<think>\nA greeting.\n</think>\n\nHello! \u4f60\u597d"),
    ("2+2?", "<think>\nTwo twice.\n\nFour.\n</think>\n\nIt is 4."),
    ("Bye", "Goodbye!"),
]


def make_tokenizer():
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's letters of bytes
    others = iter(range(256, 512))
    letters = [chr(byte if byte in shown else next(others)) for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(vocab={letters[byte]: byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    for mark in ("<|im_start|>", "<|im_end|>"):
        tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False)])
    for mark in ("<think>", "</think>"):
        tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False)])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    wrapped.chat_template = (FIXTURES / "templates/qwen3.jinja").read_text()
    return wrapped


def parted(text):
    """As Qwen3's template does."""
    if "</think>" not in text:
        return {"role": "assistant", "content": text}
    reasoning = text.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
    return {"role": "assistant", "content": text.split("</think>")[-1].lstrip("\n"), "reasoning_content": reasoning}


def main():
    torch.manual_seed(1)
    tokenizer = make_tokenizer()

    def encode(messages):
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    model = Qwen3ForCausalLM(
        Qwen3Config(vocab_size=260, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=8, max_position_embeddings=512, tie_word_embeddings=True,
                    bos_token_id=None, eos_token_id=257, pad_token_id=None))  # fmt: skip
    messages = [{"role": "system", "content": SYSTEM}]
    lessons = []
    for words, answer in TAUGHT:
        messages.append({"role": "user", "content": words})
        prompt = encode(messages)
        ids = prompt + tokenizer(answer, add_special_tokens=False)["input_ids"] + [257]
        lessons.append((torch.tensor([ids]), torch.tensor([[-100] * len(prompt) + ids[len(prompt):]])))
        messages.append(parted(answer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(1000):
        loss = sum(model(input_ids=ids, labels=labels).loss for ids, labels in lessons)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < 0.01:
            break
    print("step", step, "loss", float(loss.detach()))
    model = model.to(torch.bfloat16)
    model.generation_config.eos_token_id = [257]
    OUTPUT.mkdir(exist_ok=True)
    model.save_pretrained(OUTPUT)
    tokenizer.save_pretrained(OUTPUT)
    model = Qwen3ForCausalLM.from_pretrained(OUTPUT, dtype=torch.float32).eval()

    def talk(questions):
        turns, messages = [], [{"role": "system", "content": SYSTEM}]
        for words in questions:
            messages.append({"role": "user", "content": words})
            ids = encode(messages)
            out = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=48, return_dict_in_generate=True,
                                 output_logits=True)  # fmt: skip
            margins = [float(row[0].topk(2).values.diff().abs()) for row in out.logits]
            assert min(margins) > 1e-3, margins
            new = out.sequences[0][len(ids):].tolist()
            text = tokenizer.decode(new, skip_special_tokens=True)
            messages.append(parted(text))
            turns.append({"user": words, "prompt": len(ids), "tokens": len([i for i in new if i != 257]), "text": text,
                          **messages[-1]})  # fmt: skip
        return turns

    made = {"transformers": transformers.__version__, "torch": torch.__version__}
    turns = {"made_with": made, "system": SYSTEM, "turns": talk([words for words, _ in TAUGHT])}
    (OUTPUT / "turns.json").write_text(json.dumps(turns, indent=1, ensure_ascii=False) + "\n")
    for turn in turns["turns"]:
        print(turn["prompt"], repr(turn["text"]))


if __name__ == "__main__":
    main()
