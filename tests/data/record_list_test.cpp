#include "lora/data/records/record_list.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lora/data/records/dataset.hpp"

namespace record_list_test {

using namespace lora;
using data::Message;
using data::RecordList;

TEST_CASE("record list: each kind of record is a line of JSON, which reads back as it was") {
  RecordList list;
  CHECK(list.empty());
  std::vector<Message> talk = {{"user", "Q"}, {"assistant", "", "so"}, {"tool", "R"}, {"assistant", "A"}};
  talk[1].tool_calls = {{"f", io::json_object({{"x", 1}})}, {"g", io::Json("{}")}};
  talk[1].learned = false;
  const std::vector<io::Json> tools = {io::json_object({{"name", "f"}})};
  list.add(talk, tools);
  CHECK_FALSE(list.empty());
  CHECK(list.text() ==
        R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"","reasoning_content":"so",)"
        R"("weight":0,"tool_calls":[{"name":"f","arguments":{"x":1}},{"name":"g","arguments":"{}"}]},)"
        R"({"role":"tool","content":"R"},{"role":"assistant","content":"A"}],"tools":[{"name":"f"}]})"
        "\n");
  list.add(std::vector<Message>{{"user", "U"}, {"assistant", "V"}});
  data::RecordLists lists;
  lists["talk"] = list;
  lists["texts"].add_text("a \"text\"\nof two lines");
  lists["tokens"].add_tokens(std::vector<std::int32_t>{4, 5, 6});
  lists["tokens"].add_tokens(std::vector<std::int32_t>{4, 5}, std::vector<std::int32_t>{-100, 5});
  CHECK(lists["texts"].text() == "{\"text\":\"a \\\"text\\\"\\nof two lines\"}\n");
  CHECK(lists["tokens"].text() ==
        "{\"input_ids\":[4,5,6],\"labels\":[4,5,6]}\n{\"input_ids\":[4,5],\"labels\":[-100,5]}\n");
  const auto dataset = data::Dataset::open(std::vector<std::string>{"talk", "texts", "tokens"}, {}, lists);
  REQUIRE(dataset.size() == 5);
  const data::Sample first = dataset[0];
  REQUIRE(first.messages.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(first.messages[i].role == talk[i].role);
    CHECK(first.messages[i].content == talk[i].content);
    CHECK(first.messages[i].reasoning == talk[i].reasoning);
    CHECK(first.messages[i].learned == talk[i].learned);
    CHECK(first.messages[i].tool_calls.size() == talk[i].tool_calls.size());
  }
  CHECK(first.tools == tools);
  CHECK(first.where == "talk:1");
  CHECK(dataset[1].tools.empty());
  CHECK(dataset[1].where == "talk:2");
  CHECK(dataset[2].text == "a \"text\"\nof two lines");
  CHECK(dataset[4].labels == std::vector<std::int32_t>{-100, 5});
  CHECK(dataset[4].where == "tokens:2");
  // A list is one of records also where its name is that of a file of texts.
  lists["notes.txt"].add_text("t");
  CHECK(data::Dataset::open(std::vector<std::string>{"notes.txt"}, {}, lists)[0].text == "t");
}

TEST_CASE("sample: the question is what stands before the last answer, of one turn or more") {
  data::Sample sample;
  CHECK(sample.question().empty());
  CHECK(sample.answer() == "");
  CHECK(sample.prompt() == "");
  sample.messages = {{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}, {"assistant", "e"}};
  CHECK(sample.question().size() == 3);
  CHECK(sample.prompt() == "c");
  CHECK(sample.answer() == "e");
  sample.messages.push_back({"user", "f"});
  CHECK(sample.question().size() == 6);
  CHECK(sample.prompt() == "f");
  CHECK(sample.answer() == "");
  sample.messages = {{"assistant", "a"}};
  CHECK(sample.prompt() == "");
  CHECK(sample.answer() == "a");
}

}  // namespace record_list_test
