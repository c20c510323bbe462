#include "lora/data/tool_calls.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lora/data/dataset.hpp"
#include "lora/data/encode.hpp"
#include "lora/data/record_list.hpp"
#include "lora/io/file.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/one_file.hpp"
#include "support/temp_folder.hpp"

namespace tool_calls_test {

using namespace lora;
using data::Sample;
using test::OneFile;

namespace {

std::string python(const std::string& json) { return data::python_json(io::parse_json(json, "json")); }

/// A record whose second turn is an assistant's with these fields.
std::string record(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant",)" + fields + "}]}";
}

std::vector<std::string> calls_of(const Sample& sample) {
  std::vector<std::string> calls;
  for (const auto& message : sample.messages)
    for (const auto& call : message.tool_calls) calls.push_back(call.name + data::python_json(call.arguments));
  return calls;
}

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
        "the number 1.2345678901234568e+20; expected one below 2^63");
}

TEST_CASE("tool calls: records hold tools and calls in any spelling") {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}],)";
  const std::string turns = R"("messages":[{"role":"user","content":"Q"},)";
  const Sample openai =
      OneFile("{" + tools + turns +
              R"({"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",)"
              R"("function":{"name":"f","arguments":"{\"a\": 1}"}},{"name":"g","arguments":{}}]},)"
              R"({"role":"tool","tool_call_id":"1","content":"R"},{"role":"assistant","content":"A"}]})")
          .first();
  CHECK(calls_of(openai) == std::vector<std::string>{R"(f"{\"a\": 1}")", "g{}"});
  REQUIRE(openai.tools.size() == 1);
  CHECK(data::python_json(openai.tools[0]) == R"({"type": "function", "function": {"name": "f"}})");
  CHECK(openai.messages[1].content.empty());
  CHECK(openai.answer() == "A");
  CHECK(OneFile(record(R"("tool_calls":[{"name":"f","arguments":{"x":1}}])")).first().answer() ==
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>");
  const Sample sharegpt =
      OneFile(R"({"tools":"[{\"name\": \"f\"}]","conversations":[{"from":"human","value":"Q"},{"from":"function_call",)"
              R"("value":"{\"name\": \"f\", \"arguments\": {\"x\": [1.50]}}"},{"from":"observation","value":"R"},)"
              R"({"from":"gpt","value":"A"}]})")
          .first();
  CHECK(calls_of(sharegpt) == std::vector<std::string>{R"(f{"x": [1.5]})"});
  CHECK(sharegpt.messages[1].role == "assistant");
  CHECK(sharegpt.tools.size() == 1);
  CHECK(OneFile(R"({"instruction":"I","output":"O","tools":"[]"})").first().tools.empty());
  CHECK(OneFile(R"({"instruction":"I","output":"O","tools":[{"name":"f"}]})").first().tools.size() == 1);
  const auto dataset =
      OneFile(record(R"("content":"","tool_calls":[{"id":"7","function":{"name":"f","arguments":{},"x":1}}])")).open();
  (void)dataset[0];
  CHECK(dataset.take_unused_fields() ==
        std::vector<std::string>{"messages[].tool_calls[].id", "messages[].tool_calls[].x"});
}

TEST_CASE("tool calls: what can't be a tool or a call is said by file and line") {
  const auto said = [](const std::string& fields) { return OneFile(record(fields)).error(); };
  const auto expect = [&](const std::string& fields, const std::string& words) {
    CAPTURE(fields);
    const std::string told = said(fields);
    CHECK(test::holds(told, "d.jsonl:1"));
    CHECK_MESSAGE(test::holds(told, words), told);
  };
  expect(R"("tool_calls":{"name":"f"})", "\"tool_calls\" must be an array");
  expect(R"("tool_calls":[3])", "a tool call is number; expected an object with name and arguments");
  expect(R"("tool_calls":[{"function":"f"}])", "a tool call is string; expected an object");
  expect(R"("tool_calls":[{"arguments":{}}])", "a tool call has no name");
  expect(R"("tool_calls":[{"name":"","arguments":{}}])", "a tool call has no name");
  expect(R"("tool_calls":[{"name":"f"}])", "the call of f has no arguments; expected an object, or a text");
  expect(R"("tool_calls":[{"name":"f","arguments":[1]}])", "the call of f has no arguments");
  expect(R"("tool_calls":[{"type":"retrieval","function":{"name":"f","arguments":{}}}])",
         "a tool call's type is \"retrieval\"; expected \"function\"");
  expect(R"("content":"A","function_call":{"name":"f"})", "function_call is not supported");
  expect(R"("tool_calls":[])", "\"content\" is missing");
  const auto error_of = [](const std::string& line) { return OneFile(line).error(); };
  CHECK(test::holds(
      error_of(R"({"messages":[{"role":"user","content":"Q","tool_calls":[{"name":"f","arguments":{}}]}]})"),
      "tool_calls in a turn of the user; expected them in the assistant's turns only"));
  CHECK(
      test::holds(error_of(R"({"instruction":"I","output":"O","tools":{"name":"f"}})"), "\"tools\" must be an array"));
  CHECK(test::holds(error_of(R"({"instruction":"I","output":"O","tools":["f"]})"),
                    "a tool is string; expected an object"));
  CHECK(test::holds(error_of(R"({"instruction":"I","output":"O","tools":"look"})"),
                    "\"tools\" is a text that is no JSON: tools:1:"));
  CHECK(test::holds(error_of(R"({"text":"T","tools":[{"name":"f"}]})"), "tools are not supported"));
  CHECK(test::holds(
      error_of(R"({"conversations":[{"from":"human","value":"Q"},{"from":"function_call","value":"call f"}]})"),
      "\"value\" is a text that is no JSON"));
}

TEST_CASE("tool calls: a call is learnt, tools and what they return are not") {
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.json", test::byte_tokenizer_json());
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

}  // namespace tool_calls_test
