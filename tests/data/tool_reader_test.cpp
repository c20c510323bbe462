#include "lora/data/chat/tool_reader.hpp"

#include <doctest/doctest.h>

#include <span>
#include <string>
#include <vector>

#include "lora/data/chat/chat_template.hpp"
#include "lora/data/records/dataset.hpp"
#include "support/one_file.hpp"

namespace tool_reader_test {

using namespace lora;
using data::Sample;
using test::OneFile;

namespace {

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

TEST_CASE("tool_reader: records hold tools and calls in any spelling") {
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
  const auto dataset = OneFile(record(R"("content":"","tool_calls":[{"id":"7","type":"function","name":"g",)"
                                      R"("function":{"name":"f","arguments":{},"x":1}}])"))
                           .open();
  CHECK(calls_of(dataset[0]) == std::vector<std::string>{"f{}"});
  CHECK(dataset.take_unused_fields() == std::vector<std::string>{"messages[].tool_calls[].id",
                                                                 "messages[].tool_calls[].name",
                                                                 "messages[].tool_calls[].x"});
}

TEST_CASE("tool_reader: what can't be a tool or a call is said by file and line") {
  const auto said = [](const std::string& fields) { return OneFile(record(fields)).error(); };
  const auto expect = [&](const std::string& fields, const std::string& words) {
    CAPTURE(fields);
    CHECK(said(fields) == "d.jsonl:1: messages[1]: " + words);
  };
  expect(R"("tool_calls":{"name":"f"})", "\"tool_calls\" must be an array");
  expect(R"("tool_calls":"f")", "\"tool_calls\" must be an array");
  expect(R"("tool_calls":[3])", "tool_calls[0]: a tool call is number; expected an object with name and arguments");
  expect(R"("tool_calls":[{"function":"f"}])",
         "tool_calls[0]: a tool call is string; expected an object with name and arguments");
  expect(R"("tool_calls":[{"arguments":{}}])", "tool_calls[0]: a tool call has no name");
  expect(R"("tool_calls":[{"name":"f","arguments":{}},{"name":"","arguments":{}}])",
         "tool_calls[1]: a tool call has no name");
  expect(R"("tool_calls":[{"name":["f"],"arguments":{}}])", "tool_calls[0]: a tool call has no name");
  const std::string lacks =
      "tool_calls[0]: the call of f has no arguments; expected an object, or a text that holds one";
  expect(R"("tool_calls":[{"name":"f"}])", lacks);
  expect(R"("tool_calls":[{"name":"f","arguments":[1]}])", lacks);
  expect(R"("tool_calls":[{"name":"f","arguments":null}])", lacks);
  expect(R"("tool_calls":[{"name":"f","arguments":""}])",
         "tool_calls[0]: arguments are a text that is no JSON: arguments:1:1: syntax error while parsing value - "
         "unexpected end of input; expected '[', '{', or a literal");
  expect(R"("tool_calls":[{"name":"f","arguments":"[1]"}])",
         "tool_calls[0]: arguments are a text that holds no object");
  const std::string type = "tool_calls[0]: a tool call's type is \"retrieval\"; expected \"function\"";
  expect(R"("tool_calls":[{"type":"retrieval","function":{"name":"f","arguments":{}}}])", type);
  expect(R"("tool_calls":[{"type":"retrieval","name":"f","arguments":{}}])", type);
  expect(R"("tool_calls":[{"name":"f","arguments":{"x":[1e300]}}])",
         "tool_calls[0]: the number 1e+300; expected one above -2^63 and below 2^64");
  expect(R"("content":"A","function_call":{"name":"f"})", "function_call is not supported; expected tool_calls");
  expect(R"("tool_calls":[])", "\"content\" is missing");
  expect(R"("content":7,"tool_calls":[{"name":"f","arguments":{}}])", "\"content\" must be a string, found 7");
  const auto error_of = [](const std::string& line) { return OneFile(line).error(); };
  CHECK(error_of(R"({"messages":[{"role":"user","content":"Q","tool_calls":[{"name":"f","arguments":{}}]}]})") ==
        "d.jsonl:1: messages[0]: tool_calls in a turn of the user; expected them in the assistant's turns only");
  const auto tools = [&](const std::string& value) {
    return error_of(R"({"instruction":"I","output":"O","tools":)" + value + "}");
  };
  const std::string array = "d.jsonl:1: \"tools\" must be an array, or a text that holds one";
  CHECK(tools(R"({"name":"f"})") == array);
  CHECK(tools(R"("{\"name\": \"f\"}")") == array);
  CHECK(tools("7") == array);
  CHECK(tools(R"([{"name":"f"},"f"])") == "d.jsonl:1: tools[1]: a tool is string; expected an object");
  CHECK(tools(R"("[7]")") == "d.jsonl:1: tools[0]: a tool is number; expected an object");
  CHECK(tools(R"("look")").starts_with("d.jsonl:1: \"tools\" is a text that is no JSON: tools:1:1: "));
  CHECK(tools("\"" + std::string(201, '[') + "\"") ==
        "d.jsonl:1: \"tools\" is a text that is no JSON: tools: nested deeper than 200 levels");
  CHECK(tools(R"([{"maximum":123456789012345678901}])") ==
        "d.jsonl:1: tools[0]: the number 1.2345678901234568e+20; expected one above -2^63 and below 2^64");
  CHECK(error_of(R"({"text":"T","tools":[{"name":"f"}]})") == "d.jsonl:1: tools are not supported");
  CHECK(error_of(R"({"messages":[{"role":"user","content":"Q"}],"functions":[{"name":"f"}]})") ==
        "d.jsonl:1: functions are not supported; expected tools");
}

TEST_CASE("tool_reader: functions that are no tools of a conversation are only unused") {
  for (const char* record :
       {R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}],"functions":[]})",
        R"({"instruction":"I","output":"O","functions":["main"]})", R"({"text":"T","functions":["main"]})"}) {
    CAPTURE(record);
    const auto dataset = OneFile(record).open();
    CHECK_NOTHROW(dataset[0]);
    CHECK(dataset.take_unused_fields() == std::vector<std::string>{"functions"});
  }
}

TEST_CASE("tool_reader: a turn of function_call has one call or several, and thoughts before them at will") {
  const auto talk = [](const std::string& value) {
    return R"({"conversations":[{"from":"human","value":"Q"},{"from":"function_call")" + value +
           R"(},{"from":"observation","value":"R"},{"from":"gpt","value":"A"}]})";
  };
  const auto read = [&](const std::string& json) { return OneFile(talk(",\"value\":" + json)).first(); };
  CHECK(calls_of(read(R"(" {\"arguments\": \"{}\", \"name\": \"f\"}\n")")) == std::vector<std::string>{"f\"{}\""});
  CHECK(calls_of(read(R"("[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {\"b\": 1}}]")")) ==
        std::vector<std::string>{"f{}", "g{\"b\": 1}"});
  const Sample thinks = read(R"("\n<think>\nso\n</think>\n\n{\"name\": \"f\", \"arguments\": {\"x\": \"</think>\"}}")");
  CHECK(thinks.messages[1].content == "<think>\nso\n</think>");
  CHECK(calls_of(thinks) == std::vector<std::string>{R"(f{"x": "</think>"})"});
  CHECK(data::ChatTemplate::named("qwen3")
            .render(std::span(thinks.messages).first(2))
            .text.ends_with("assistant\n<think>\nso\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
                            "{\"x\": \"</think>\"}}\n</tool_call><|im_end|>\n"));
  const auto error_of = [&](const std::string& value) { return OneFile(talk(value)).error(); };
  const std::string place = "d.jsonl:1: conversations[1]: ";
  CHECK(error_of("") == place + "\"value\" is missing");
  CHECK(error_of(R"(,"value":{"name":"f"})") == place + "\"value\" must be a string, found {\"name\":\"f\"}");
  CHECK(error_of(R"(,"value":"[]")") == place + "value: a turn of function_call without a call");
  CHECK(error_of(R"(,"value":"7")") ==
        place + "value: a tool call is number; expected an object with name and arguments");
  CHECK(error_of(R"(,"value":"[{\"name\": \"f\"}]")") ==
        place + "value[0]: the call of f has no arguments; expected an object, or a text that holds one");
  CHECK(error_of(R"(,"value":"call f")").starts_with(place + "\"value\" is a text that is no JSON: value:1:1: "));
  CHECK(error_of(R"(,"value":"<think>so {}")").starts_with(place + "\"value\" is a text that is no JSON: value:1:1: "));
  CHECK(error_of(R"(,"value":"<think>so</think>")").starts_with(place + "\"value\" is a text that is no JSON: "));
  CHECK(error_of(R"(,"value":"{}","tool_calls":[{"name":"f","arguments":{}}])") ==
        place + "a turn of function_call has tool_calls beside its value");
  const auto dataset = OneFile(talk(R"(,"value":"{\"name\": \"f\", \"arguments\": {}, \"id\": 1}")")).open();
  (void)dataset[0];
  CHECK(dataset.take_unused_fields() == std::vector<std::string>{"conversations[].value[].id"});
}

}  // namespace tool_reader_test
