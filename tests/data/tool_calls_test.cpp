#include "lora/data/chat/tool_calls.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lora/data/batches/encode.hpp"
#include "lora/data/records/dataset.hpp"
#include "lora/data/records/record_list.hpp"
#include "lora/io/files/file.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace tool_calls_test {

using namespace lora;

namespace {

std::string python(const std::string& json) { return data::python_json(io::parse_json(json, "json")); }

}  // namespace

TEST_CASE("tool calls: JSON is written as Python writes it") {
  CHECK(python(R"( {"b":[1,-2,{}],"a":{"x":[]},"n":null,"t":true} )") ==
        R"({"b": [1, -2, {}], "a": {"x": []}, "n": null, "t": true})");
  CHECK(python(R"(["\u00e9\u4f60/\"\\","\b\f\n\r\t\u0000\u001f\u007f"])") ==
        "[\"\u00e9\u4f60/\\\"\\\\\", \"\\b\\f\\n\\r\\t\\u0000\\u001f\x7F\"]");
  CHECK(
      python("[1.0,-0.0,0.1,1e-4,0.00001,123456.75,1e15,1e16,12345678901234567.0,5e-324,1.5E3]") ==
      "[1.0, -0.0, 0.1, 0.0001, 1e-05, 123456.75, 1000000000000000.0, 1e+16, 1.2345678901234568e+16, 5e-324, 1500.0]");
  CHECK(python("[9223372036854775807,-9223372036854775808,18446744073709551615,0]") ==
        "[9223372036854775807, -9223372036854775808, 18446744073709551615, 0]");
  CHECK(test::message_of<FormatError>([] { python("[123456789012345678901]"); }) ==
        "the number 1.2345678901234568e+20; expected one above -2^63 and below 2^64");
  CHECK(python("[-9223372036854774784.0,18446744073709549568.0]") == "[-9.223372036854775e+18, 1.844674407370955e+19]");
  for (const char* past : {"[-9223372036854775808.0]", "[18446744073709551616.0]", "[-1e300]"}) {
    CAPTURE(past);
    CHECK_THROWS_AS(python(past), FormatError);
  }
}

TEST_CASE("tool calls: each call but one that begins the answer stands on a line of its own") {
  const std::vector<data::ToolCall> calls = {{"f", io::Json::object()}, {"g", io::Json("{\"x\": 1}")}};
  const std::string f = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
                    g = "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\": 1}}\n</tool_call>",
                    quoted = "<tool_call>\n{\"name\": \"g\", \"arguments\": \"{\\\"x\\\": 1}\"}\n</tool_call>";
  CHECK(data::with_calls("", false, calls, false) == f + "\n" + g);
  CHECK(data::with_calls("", true, calls, true) == "\n" + f + "\n" + quoted);
  CHECK(data::with_calls("A", true, calls, false) == "A\n" + f + "\n" + g);
  CHECK(data::with_calls("A", true, {}, false) == "A");
}

TEST_CASE("tool calls: a call is learned, tools and what they return are not") {
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.json", test::byte_tokenizer_json(test::tool_marks));
  const auto tokenizer = tokenizer::Tokenizer::from_folder(folder.path());
  const data::Encoder encoder(&tokenizer, data::ChatTemplate::named("qwen3"), {.cutoff_len = 4096});
  data::RecordLists lists;
  std::vector<data::Message> talk = {{"user", "Q"}, {"assistant", ""}, {"tool", "R"}, {"assistant", "A"}};
  talk[1].tool_calls.push_back({"f", io::json_object({{"x", 1}})});
  const std::vector<io::Json> tools = {io::json_object({{"name", "f"}})};
  lists["talk"].add(talk, tools);
  const auto dataset = data::Dataset::open(std::vector<std::string>{"talk"}, {}, lists);
  const std::string shown = data::preview(encoder(dataset[0]), &tokenizer);
  CHECK(test::holds(shown, "<tools>\n{\"name\": \"f\"}\n</tools>"));
  CHECK(test::holds(shown,
                    "assistant\n\u27e6<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>"
                    "\u27e7"));
  CHECK(test::holds(shown, "<|im_start|>user\n<tool_response>\nR\n</tool_response><|im_end|>\n"));
  CHECK(test::holds(tokenizer.decode(encoder.prompt(dataset[0])), "<tools>\n{\"name\": \"f\"}\n</tools>"));
}

TEST_CASE("tool calls: with train_on_last_turn_only the calls before the last answer are not learned") {
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.json", test::byte_tokenizer_json(test::tool_marks));
  const auto tokenizer = tokenizer::Tokenizer::from_folder(folder.path());
  const data::EncodeOptions options{.cutoff_len = 4096, .train_on_last_turn_only = true};
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call><|im_end|>";
  data::Sample sample;
  sample.messages = {{"user", "Q"}, {"assistant", ""}, {"tool", "R"}, {"tool", "S"}, {"assistant", "A"}};
  sample.messages[1].tool_calls.push_back({"f", io::Json::object()});
  for (const char* name : {"qwen2_5", "qwen3_instruct_2507"}) {
    CAPTURE(name);
    const data::Encoder encoder(&tokenizer, data::ChatTemplate::named(name), options);
    const std::string shown = data::preview(encoder(sample), &tokenizer);
    CHECK(test::holds(shown, "assistant\n" + call +
                                 "\n<|im_start|>user\n<tool_response>\nR\n</tool_response>\n"
                                 "<tool_response>\nS\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
                                 "\u27e6A<|im_end|>\u27e7"));
  }
  // A call that is the last turn is the answer, and not part of the prompt.
  sample.messages.resize(2);
  const data::Encoder encoder(&tokenizer, data::ChatTemplate::named("qwen3_instruct_2507"), options);
  CHECK(data::preview(encoder(sample), &tokenizer) ==
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n\u27e6" + call + "\u27e7");
  CHECK(tokenizer.decode(encoder.prompt(sample)) == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("tool calls: a template without them names itself, and the record") {
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.json", test::byte_tokenizer_json(test::tool_marks));
  const auto tokenizer = tokenizer::Tokenizer::from_folder(folder.path());
  const data::Encoder encoder(&tokenizer, data::ChatTemplate::named("llama3"), {.cutoff_len = 4096});
  data::Sample sample;
  sample.where = "d.jsonl:7";
  sample.messages = {{"user", "Q"}, {"assistant", "A"}};
  sample.tools = {io::json_object({{"name", "f"}})};
  const auto said = [&] { return test::message_of<FormatError>([&] { encoder(sample); }); };
  CHECK(said() == "d.jsonl:7: template llama3 has no place for tools");
  sample.tools.clear();
  sample.messages[1].tool_calls.push_back({"f", io::Json::object()});
  CHECK(said() == "d.jsonl:7: template llama3 has no place for tool calls (turn 2)");
}

}  // namespace tool_calls_test
