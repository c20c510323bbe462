#include "lora/data/chat/chat_template.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/data/chat/chat_template_table.hpp"
#include "lora/data/chat/tool_calls.hpp"
#include "lora/data/records/dataset.hpp"
#include "lora/data/records/record_list.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/tokenizer/unicode.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/template_fixtures.hpp"

namespace chat_template_test {

using namespace lora;
using data::ChatTemplate;
using data::Message;

namespace {

/// Conversations with tools as a data file has them, every second one's tools as a text.
data::Dataset calling_records(const std::vector<io::Json>& conversations, const ChatTemplate& chat) {
  data::RecordLists lists;
  for (std::size_t i = 0; i < conversations.size(); ++i) {
    const io::Json& tools = conversations[i]["tools"];
    io::Json record = io::json_object({{"messages", conversations[i]["messages"]}, {"tools", tools}});
    if (i % 2 == 1) record["tools"] = data::python_json(tools);
    for (io::Json& turn : record["messages"])
      if (!chat.thinks()) turn.erase("reasoning_content");
    lists["calling"].add(record);
  }
  return data::Dataset::open(std::vector<std::string>{"calling"}, {.need_answer = false}, lists);
}

/// `set`: conversations, or tools.
void check_against_reference(const std::string& file, const std::string& name,
                             const std::string& set = "conversations") {
  const auto chat = ChatTemplate::named(name, "</s>");
  const auto records = test::template_lines(set);
  const auto expected = test::template_lines(set == "tools" ? file + ".tools" : file);
  REQUIRE(records.size() == (set == "tools" ? 200 : 500));
  REQUIRE(expected.size() == records.size());
  std::optional<data::Dataset> calling;
  if (set == "tools") calling = calling_records(records, chat);
  std::size_t refused = 0;
  const auto stride = test::effort<std::size_t>(1, 5, "chat_template: four of five conversations");
  for (std::size_t i = 0; i < records.size(); i += stride) {
    CAPTURE(i);
    const data::Sample sample = calling ? (*calling)[static_cast<Index>(i)] : data::Sample();
    const auto messages = calling ? sample.messages : test::template_messages(records[i], name);
    auto options = test::template_options(records[i]);
    options.tools = sample.tools;
    if (expected[i].contains("refused")) {
      CHECK_THROWS_AS(chat.render(messages, options), FormatError);
      ++refused;
      continue;
    }
    const auto rendering = chat.render(messages, options);
    if (expected[i].contains("text")) CHECK(rendering.text == expected[i]["text"].get<std::string>());
    CHECK(rendering.text.size() == expected[i]["bytes"].get<std::size_t>());
    char hash[17];
    std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(text_hash(rendering.text)));
    CHECK(std::string(hash) == expected[i]["hash"].get<std::string>());
    const auto& answers = expected[i]["answers"];
    REQUIRE(rendering.answers.size() == answers.size());
    CHECK(std::count_if(messages.begin(), messages.end(), [](const Message& m) { return m.role == "assistant"; }) ==
          static_cast<std::ptrdiff_t>(answers.size()));
    for (std::size_t a = 0; a < answers.size(); ++a) {
      CHECK(rendering.answers[a].begin == answers[a][0].get<std::size_t>());
      CHECK(rendering.answers[a].end == answers[a][1].get<std::size_t>());
    }
  }
  // A system turn that is not the first; turns of tools as well, and those alone.
  if (stride == 1) CHECK(refused == (name == "smollm3" ? 21 : name == "alpaca" ? 164 : name == "none" ? 148 : 0));
}

}  // namespace

TEST_CASE("chat_template: chatml equals the reference") { check_against_reference("chatml", "chatml"); }
TEST_CASE("chat_template: qwen2 equals the reference") { check_against_reference("qwen2", "qwen2"); }
TEST_CASE("chat_template: qwen2_5 equals the reference") { check_against_reference("qwen2_5", "qwen2_5"); }
TEST_CASE("chat_template: qwen2_5_base equals the reference") {
  check_against_reference("qwen2_5_base", "qwen2_5_base");
}
TEST_CASE("chat_template: both revisions of qwen3 equal the reference") {
  check_against_reference("qwen3", "qwen3");
  check_against_reference("qwen3_v2", "qwen3");
}
TEST_CASE("chat_template: qwen3_instruct_2507 equals the reference") {
  check_against_reference("qwen3_instruct_2507", "qwen3_instruct_2507");
}
TEST_CASE("chat_template: qwen3_thinking_2507 equals the reference") {
  check_against_reference("qwen3_thinking_2507", "qwen3_thinking_2507");
}
TEST_CASE("chat_template: smollm2 equals the reference") { check_against_reference("smollm2", "smollm2"); }
TEST_CASE("chat_template: smollm3 equals the reference") { check_against_reference("smollm3", "smollm3"); }
TEST_CASE("chat_template: llama3 equals the reference") { check_against_reference("llama3", "llama3"); }
TEST_CASE("chat_template: llama3_1 equals the reference") { check_against_reference("llama3_1", "llama3_1"); }
TEST_CASE("chat_template: llama3_2 equals the reference") { check_against_reference("llama3_2", "llama3_2"); }

TEST_CASE("chat_template: alpaca equals its Jinja text") { check_against_reference("alpaca", "alpaca"); }
TEST_CASE("chat_template: none equals its Jinja text") { check_against_reference("none", "none"); }

TEST_CASE("chat_template: tools and their calls equal the reference") {
  check_against_reference("qwen2_5", "qwen2_5", "tools");
  check_against_reference("qwen2_5_base", "qwen2_5_base", "tools");
  check_against_reference("qwen3", "qwen3", "tools");
  check_against_reference("qwen3_v2", "qwen3", "tools");
  check_against_reference("qwen3_instruct_2507", "qwen3_instruct_2507", "tools");
  check_against_reference("qwen3_thinking_2507", "qwen3_thinking_2507", "tools");
}

TEST_CASE("chat_template: a template without tools refuses them and their calls") {
  const std::vector<io::Json> tools = {io::json_object({{"name", "look"}})};
  data::RenderOptions options;
  options.tools = tools;
  std::vector<Message> talk = {{"user", "Q"}, {"assistant", ""}};
  Message calling = talk[1];
  calling.tool_calls.push_back({"look", io::Json::object()});
  for (const std::string name :
       {"qwen2", "smollm2", "smollm3", "chatml", "llama3", "llama3_1", "llama3_2", "alpaca", "none"}) {
    CAPTURE(name);
    const auto chat = ChatTemplate::named(name, "</s>");
    CHECK_FALSE(chat.calls_tools());
    CHECK(test::message_of<Error>([&] { chat.render(talk, options); }) ==
          "template " + name + " has no place for tools");
    CHECK(test::message_of<Error>([&] {
            chat.render(std::vector<Message>{talk[0], calling});
          }) == "template " + name + " has no place for tool calls (turn 2)");
  }
  calling.role = "user";
  CHECK(test::message_of<Error>([&] { ChatTemplate::named("qwen3").render(std::vector<Message>{calling}); }) ==
        "turn 1 is the user's and has tool calls; only an assistant calls");
}

TEST_CASE("chat_template: every published text is recognized, but for white space that it does not write") {
  std::set<std::string_view> left;
  for (const auto& published : data::detail::published_templates) left.insert(published.name);
  for (const std::string file :
       {"qwen2", "qwen2_5", "qwen2_5_base", "qwen3", "qwen3_v2", "qwen3_instruct_2507", "qwen3_thinking_2507",
        "smollm2", "smollm3", "chatml", "llama3", "llama3_1", "llama3_2", "alpaca", "none"}) {
    const std::string name = file == "qwen3_v2" ? "qwen3" : file;
    CAPTURE(file);
    left.erase(name);
    const std::string text = io::read_file(test::template_data(file + ".jinja"));
    const auto found = ChatTemplate::find(text, "</s>").value();
    CHECK(found.name() == name);
    CHECK(found.text() == text);
    if (file == name) CHECK(ChatTemplate::named(name, "</s>").text() == text);
    std::string lines;
    for (const char c : text) lines += c == '\n' ? std::string("\r\n") : std::string(1, c);
    CHECK(ChatTemplate::find(lines + "\r\n", "</s>").value().name() == name);
    // White space that would be written makes it another one, wherever it stands.
    CHECK_FALSE(ChatTemplate::find("x" + text, "</s>"));
    for (const char* const more : {" ", "\\n"})
      for (std::size_t at = text.find('\''); at < text.size(); at = text.find('\'', at + 1))
        if (text.substr(at - 2, 4) == "+ '<") {
          CAPTURE(at);
          CHECK_FALSE(ChatTemplate::find(text.substr(0, at + 1) + more + text.substr(at + 1), "</s>"));
        }
  }
  CHECK(left.empty());
  CHECK(std::size(data::detail::published_templates) == 15);
}

TEST_CASE("chat_template: a text with one letter changed is not a known one") {
  std::string text = io::read_file(test::template_data("qwen3.jinja"));
  text[text.find("assistant")] = 'A';
  CHECK_FALSE(ChatTemplate::find(text));
  CHECK_FALSE(ChatTemplate::find(" \n"));
}

TEST_CASE("chat_template: the opening of a tokenizer stands before the texts of alpaca and none, and no others") {
  for (const std::string opening : {"<s>", "a \"quoted\" \\ one"}) {
    const std::string tag = "{{- " + io::to_text(opening, -1) + " }}\n";
    for (const std::string name : {"alpaca", "none", "chatml", "llama3"}) {
      CAPTURE(name);
      const bool opens = name == "alpaca" || name == "none";
      const std::string text = io::read_file(test::template_data(name + ".jinja"));
      CHECK(ChatTemplate::named(name, "</s>", opening).text() == (opens ? tag + text : text));
      CHECK(ChatTemplate::find(tag + text, "</s>").has_value() == opens);
    }
  }
  CHECK_FALSE(ChatTemplate::find("{{- \"<s>\" }}", "</s>").has_value());
  CHECK_FALSE(ChatTemplate::find("{{- \"<s>", "</s>").has_value());
  CHECK_FALSE(ChatTemplate::find(io::read_file(test::template_data("none.jinja"))).has_value());  // without an end
}

TEST_CASE("chat_template: names that are unknown, or need an end-of-text token, are errors") {
  CHECK_THROWS_AS(ChatTemplate::named("qwen"), ConfigError);
  CHECK_THROWS_AS(ChatTemplate::named("alpaca"), ConfigError);
  CHECK_THROWS_AS(ChatTemplate::named("none"), ConfigError);
  CHECK(ChatTemplate::named("none", "</s>").end_of_turn() == "</s>");
  CHECK(ChatTemplate::named("llama3_2").end_of_turn() == "<|eot_id|>");
  CHECK(ChatTemplate::named("qwen3").end_of_turn() == "<|im_end|>");
}

TEST_CASE("chat_template: alpaca writes its headings and ends answers with the end-of-text token") {
  const auto alpaca = ChatTemplate::named("alpaca", "</s>");
  const std::vector<Message> talk = {
      {"user", "Add 1 and 2."}, {"assistant", "3"}, {"user", "And 4?"}, {"assistant", "7"}};
  const auto rendering = alpaca.render(talk);
  const std::string system =
      "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n";
  CHECK(rendering.text == system +
                              "### Instruction:\nAdd 1 and 2.\n\n### Response:\n3</s>\n\n"
                              "### Instruction:\nAnd 4?\n\n### Response:\n7</s>\n\n");
  REQUIRE(rendering.answers.size() == 2);
  const auto& first = rendering.answers[0];
  CHECK(rendering.text.substr(first.begin, first.end - first.begin) == "3</s>");
  CHECK(alpaca.render(std::vector<Message>{{"system", "S"}, {"user", "U"}}).text ==
        "S\n\n### Instruction:\nU\n\n### Response:\n");
  CHECK_THROWS_AS(alpaca.render(std::vector<Message>{{"user", "U"}, {"tool", "T"}}), FormatError);
  CHECK_THROWS_AS(alpaca.render(std::vector<Message>{{"user", "U"}, {"system", "S"}}), FormatError);
}

TEST_CASE("chat_template: none joins the contents as they are") {
  const auto none = ChatTemplate::named("none", "<e>");
  const auto rendering = none.render(std::vector<Message>{{"user", "2+2="}, {"assistant", "4"}});
  CHECK(rendering.text == "2+2=4<e>");
  REQUIRE(rendering.answers.size() == 1);
  CHECK(rendering.answers[0].begin == 4);
  CHECK(rendering.answers[0].end == 8);
}

TEST_CASE("chat_template: what a template would drop is refused by name") {
  std::vector<Message> talk = {{"user", "U"}, {"assistant", "A", "because"}};
  auto message = test::message_of<Error>([&] { ChatTemplate::named("qwen2_5").render(talk); });
  CHECK(message == "template qwen2_5 has no place for reasoning apart from the content (turn 2)");
  CHECK_NOTHROW(ChatTemplate::named("qwen3").render(talk));
  talk = {{"user", "U"}, {"system", "S"}};
  message = test::message_of<Error>([&] { ChatTemplate::named("smollm3").render(talk); });
  CHECK(message == "template smollm3 has no place for a system turn that is not the first (turn 2)");
  talk = {{"human", "U"}};
  message = test::message_of<Error>([&] { ChatTemplate::named("qwen3").render(talk); });
  CHECK(message == "turn 1 has the role \"human\"; expected system, user, assistant or tool");
  CHECK_THROWS_AS(ChatTemplate::named("qwen3").render(std::vector<Message>{}), FormatError);
}

TEST_CASE("chat_template: dates are written as the template has them, and must be dates") {
  const std::vector<Message> talk = {{"user", "U"}};
  const auto render = [&](const char* name, const char* date) {
    return ChatTemplate::named(name).render(talk, {false, true, date}).text;
  };
  CHECK(render("llama3_2", "2025-03-09").find("Today Date: 09 Mar 2025\n") != std::string::npos);
  CHECK(render("smollm3", "2025-03-09").find("Today Date: 09 March 2025\n") != std::string::npos);
  CHECK(render("llama3_1", "").find("Today Date: 26 Jul 2024\n") != std::string::npos);
  for (const char* name : {"llama3_2", "smollm3"}) {
    const bool whole_month = std::string_view(name) == "smollm3";
    const auto today = [&] { return "Today Date: " + data::detail::written_date(data::detail::today(), whole_month); };
    const std::string before = today(), text = render(name, "");
    CHECK((text.find(before + "\n") != text.npos || text.find(today() + "\n") != text.npos));  // at midnight
  }
  for (const char* wrong :
       {"2025-13-01",  "2025-00-01", "2025-01-32", "25-01-01",   "2025/01/01", "2025-01-0x", "today",      "2024-02-30",
        "2025-02-29",  "1900-02-29", "2025-04-31", "2025-06-31", "2025-09-31", "2025-11-31", "2025-01-00", "2025-1-1",
        "2025-01-01 ", "+025-01-01", "20250-1-01", "2025-1-001", "2025-01--1", "2025-01-0:"})
    CHECK_THROWS_AS(render("llama3_2", wrong), ConfigError);
  for (const char* last :
       {"2024-02-29", "2000-02-29", "2025-02-28", "2025-01-31", "2025-03-31", "2025-04-30", "2025-05-31", "2025-06-30",
        "2025-07-31", "2025-08-31", "2025-09-30", "2025-10-31", "2025-11-30", "2025-12-31"})
    CHECK_NOTHROW(render("llama3_2", last));
  CHECK(ChatTemplate::named("llama3_1").date() == "2024-07-26");
  CHECK(ChatTemplate::named("llama3_2").date() == data::detail::today());
  CHECK(ChatTemplate::named("llama3_2").prints_date());
  CHECK(ChatTemplate::named("smollm3").prints_date());
  CHECK(ChatTemplate::named("llama3_1").prints_date());
  CHECK_FALSE(ChatTemplate::named("qwen3").prints_date());
}

TEST_CASE("chat_template: Llama 3 strips what Python's str.strip does, and nothing else") {
  // every code point below U+3100 for which str.isspace() is true
  const int white[] = {0x9,    0xA,    0xB,    0xC,    0xD,    0x1C,   0x1D,   0x1E,   0x1F,   0x20,
                       0x85,   0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006,
                       0x2007, 0x2008, 0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
  std::size_t found = 0;
  for (int code = 1; code < 0x3100; ++code) {
    CAPTURE(code);
    std::string text;
    tokenizer::unicode::append_utf8(text, static_cast<char32_t>(code));
    const bool stripped = data::strip(text + "a b" + text) == "a b";
    CHECK((stripped || data::strip(text + "a b" + text) == text + "a b" + text));
    CHECK(stripped == (std::find(std::begin(white), std::end(white), code) != std::end(white)));
    found += stripped;
  }
  CHECK(found == std::size(white));
  CHECK(data::strip(" \n\u00a0 ").empty());
}

TEST_CASE("chat_template: text that is no UTF-8 is carried along, its cut ends are no white space") {
  for (const std::string content : {"\xE3", "\xE2\x80", "a\xE1@@", "\xC2"}) {
    CAPTURE(content);
    const std::vector<Message> messages{{"user", content}, {"assistant", content}};
    for (const char* name : {"llama3", "llama3_1", "smollm3", "qwen3"}) {
      CAPTURE(name);
      const auto rendering =
          ChatTemplate::named(name).render(messages, {.enable_thinking = false, .date = "2024-07-26"});
      const auto answer = rendering.answers.at(0);
      CHECK(rendering.text.substr(answer.begin, answer.end - answer.begin).starts_with(content));
    }
  }
}

TEST_CASE("chat_template: what each one is and does, from the model's side") {
  struct Facts {
    std::string_view name, end;
    bool date, at_will, thinks, calls, quotes, opens;
    std::size_t markers, of_tools;
  };
  const std::string_view im_end = "<|im_end|>", eot = "<|eot_id|>", own = "</s>";
  const Facts facts[] = {
      {"qwen2", im_end, false, false, false, false, false, false, 2, 0},
      {"qwen2_5", im_end, false, false, false, true, true, false, 2, 2},
      {"qwen2_5_base", im_end, false, false, false, true, true, false, 2, 2},
      {"qwen3", im_end, false, true, true, true, false, false, 2, 4},
      {"qwen3_instruct_2507", im_end, false, false, false, true, false, false, 2, 4},
      {"qwen3_thinking_2507", im_end, false, false, true, true, false, false, 2, 4},
      {"smollm2", im_end, false, false, false, false, false, false, 2, 0},
      {"smollm3", im_end, true, true, true, false, false, false, 2, 0},
      {"chatml", im_end, false, false, false, false, false, false, 2, 0},
      {"llama3", eot, false, false, false, false, false, false, 4, 0},
      {"llama3_1", eot, true, false, false, false, false, false, 4, 0},
      {"llama3_2", eot, true, false, false, false, false, false, 4, 0},
      {"alpaca", own, false, false, false, false, false, true, 1, 0},
      {"none", own, false, false, false, false, false, true, 1, 0},
  };
  REQUIRE(ChatTemplate::names().size() == std::size(facts));
  for (std::size_t i = 0; i < std::size(facts); ++i) {
    const Facts& fact = facts[i];
    CHECK(ChatTemplate::names()[i] == fact.name);
    CAPTURE(std::string(fact.name));
    const auto chat = ChatTemplate::named(fact.name, "</s>");
    CHECK(chat.name() == fact.name);
    CHECK(chat.end_of_turn() == fact.end);
    CHECK(chat.prints_date() == fact.date);
    CHECK(chat.thinks_at_will() == fact.at_will);
    CHECK(chat.thinks() == fact.thinks);
    CHECK(chat.calls_tools() == fact.calls);
    CHECK(chat.quotes_texts() == fact.quotes);
    CHECK(chat.needs_opening() == fact.opens);
    CHECK(chat.markers().size() == fact.markers);
    CHECK(chat.markers_of_thoughts().size() == (fact.thinks ? 2 : 0));
    CHECK(chat.markers_of_tools().size() == fact.of_tools);
  }
  using Marks = std::vector<std::string_view>;
  CHECK(ChatTemplate::named("chatml").markers() == Marks{"<|im_start|>", "<|im_end|>"});
  CHECK(ChatTemplate::named("none", "</s>").markers() == Marks{"</s>"});
  const auto qwen3 = ChatTemplate::named("qwen3");
  CHECK(Marks(qwen3.markers_of_thoughts().begin(), qwen3.markers_of_thoughts().end()) == Marks{"<think>", "</think>"});
  CHECK(Marks(qwen3.markers_of_tools().begin(), qwen3.markers_of_tools().end()) ==
        Marks{"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"});
  for (const char* name : {"qwen2_5", "qwen2_5_base"}) {
    const auto qwen = ChatTemplate::named(name);
    CHECK(Marks(qwen.markers_of_tools().begin(), qwen.markers_of_tools().end()) ==
          Marks{"<tool_call>", "</tool_call>"});
  }
  for (const auto& entry : data::detail::template_entries) {
    CAPTURE(std::string(entry.name));
    const auto chat = ChatTemplate::named(entry.name, "</s>");
    const bool thinking = entry.name == "qwen3_thinking_2507";
    CHECK(chat.takes_reasoning() == (thinking || entry.name == "qwen3"));
    for (const bool thinks : {true, false}) CHECK(chat.opens_reasoning({.enable_thinking = thinks}) == thinking);
  }
}

TEST_CASE("chat_template: without thinking the answers of qwen3 lose their thoughts, and nothing else loses anything") {
  const std::vector<Message> talk = {
      {"system", "<think>s</think>S"}, {"user", "<think>u</think>U"},       {"assistant", "<think>\na\n</think>\n\nA"},
      {"tool", "<think>t</think>T"},   {"assistant", "B </think> b", "so"}, {"assistant", "C"}};
  const auto turns_of = [&](std::string_view name, bool thinks) {
    std::string text;
    for (const Message& turn : ChatTemplate::named(name, "</s>").turns_of(talk, {.enable_thinking = thinks}))
      text += turn.role + "=" + turn.content + (turn.reasoning ? "(" + *turn.reasoning + ")" : "") + "|";
    return text;
  };
  const std::string begin = "system=<think>s</think>S|user=<think>u</think>U|assistant=",
                    whole = begin +
                            "<think>\na\n</think>\n\nA|tool=<think>t</think>T|assistant=B </think> b(so)|"
                            "assistant=C|";
  for (const auto& entry : data::detail::template_entries) {
    CAPTURE(std::string(entry.name));
    CHECK(turns_of(entry.name, true) == whole);
    CHECK(
        turns_of(entry.name, false) ==
        (entry.name == "qwen3" ? begin + "A()|tool=<think>t</think>T|assistant=B </think> b()|assistant=C()|" : whole));
  }
}

TEST_CASE("chat_template: what is refused is told in full") {
  const std::string choices =
      "qwen2, qwen2_5, qwen2_5_base, qwen3, qwen3_instruct_2507, qwen3_thinking_2507, smollm2, smollm3, chatml, "
      "llama3, "
      "llama3_1, llama3_2, alpaca, none";
  CHECK(ChatTemplate::choices() == choices);
  CHECK(test::message_of<Error>([] { ChatTemplate::named("qwen"); }) ==
        "template is qwen; expected auto or one of " + choices);
  for (const std::string name : {"alpaca", "none"})
    CHECK(test::message_of<Error>([&] { ChatTemplate::named(name); }) ==
          "template " + name + " ends an answer with the end-of-text token, and the model names none");
  for (const std::string name : {"alpaca", "none"})
    CHECK(test::message_of<Error>([&] {
            ChatTemplate::named(name, "</s>").render(std::vector<Message>{{"user", "U"}, {"tool", "T"}});
          }) == "template " + name + " has no place for tool turns (turn 2)");
  CHECK(test::message_of<Error>([] {
          ChatTemplate::named("alpaca", "</s>").render(std::vector<Message>{{"user", "U"}, {"system", "S"}});
        }) == "template alpaca has no place for a system turn that is not the first (turn 2)");
  CHECK(test::message_of<Error>([] { ChatTemplate::named("qwen3").render(std::vector<Message>{}); }) ==
        "the conversation has no turns");
  // Reasoning that is there but empty needs no place.
  CHECK(test::message_of<Error>([] {
          ChatTemplate::named("chatml").render(std::vector<Message>{{"user", "U"}, {"assistant", "A", ""}});
        }) == "nothing was thrown");
}

TEST_CASE("chat_template: each month has its name, whole or of three letters") {
  const std::string months[] = {"January", "February", "March",     "April",   "May",      "June",
                                "July",    "August",   "September", "October", "November", "December"};
  for (std::size_t i = 0; i < 12; ++i) {
    const std::string number = (i < 9 ? "0" : "") + std::to_string(i + 1);
    CHECK(data::detail::written_date("2025-" + number + "-07", true) == "07 " + months[i] + " 2025");
    CHECK(data::detail::written_date("1999-" + number + "-28", false) == "28 " + months[i].substr(0, 3) + " 1999");
  }
  CHECK(test::message_of<Error>([] { (void)data::detail::written_date("2025-13-01", true); }) ==
        "date is 2025-13-01; expected a day of the calendar as YYYY-MM-DD");
  const std::string before = data::detail::today();
  const std::time_t now = std::time(nullptr);
  const std::tm local = *std::localtime(&now);
  const std::string day = concat(local.tm_year + 1900, local.tm_mon < 9 ? "-0" : "-", local.tm_mon + 1,
                                 local.tm_mday < 10 ? "-0" : "-", local.tm_mday);
  CHECK((before == day || data::detail::today() == day));  // unless midnight has passed between
}

TEST_CASE("chat_template: of a template's text that white space counts which it writes") {
  const auto same = [](std::string_view text, std::string_view expected) {
    CAPTURE(text);
    CHECK(data::detail::significant_text(text) == expected);
  };
  same("{%-if  a\n ==\t'  b' -%} c\n", "{% if a == '  b' %}c");
  same("a  b\r\nc\rd\n", "a  b\nc\nd");  // one line end at the end is none
  same("a\n\n", "a\n");
  // trim_blocks: a line end behind a block, and lstrip_blocks: what a line begins with before one.
  same("  {% a %}\n  b\n  {% c %} \n{{ d }}\n", "{% a %}  b\n{% c %} \n{{ d }}");
  same("  {{ d }}\n  x {% a %}", "  {{ d }}\n  x {% a %}");
  same(" {%+ a %}", " {% a %}");
  same("{% a %}\n{% b %}\n\n{% c %}", "{% a %}{% b %}\n{% c %}");
  same("a {{- b }} c", "a{{ b }} c");
  same("a {{ b -}}\n\n c", "a {{ b }}c");
  same("{%- a -%} \n b", "{% a %}b");
  same("a {# 'x #} b{#- y -#}\nc", "a  bc");
  same("{ {{ '}}' + \"it's \\\" }}\" }} }", "{ {{ '}}' + \"it's \\\" }}\" }} }");
  for (const char* const open : {"{{ a", "{% 'a %}", "{# a", "{{ 'a\\"})
    CHECK(data::detail::significant_text(open).empty());
}

TEST_CASE("chat_template: newlines are taken off on the sides that are asked for") {
  using data::detail::strip_newlines;
  CHECK(strip_newlines("\n\n a \n\n", true, true) == " a ");
  CHECK(strip_newlines("\n\na\n\n", true, false) == "a\n\n");
  CHECK(strip_newlines("\n\na\n\n", false, true) == "\n\na");
  CHECK(strip_newlines("\n\n", true, true) == "");
  CHECK(data::detail::without("a/x/x/b/x", "/x") == "a/b");
  CHECK(data::detail::without("abab", "c") == "abab");
  CHECK(ChatTemplate::without_thoughts("a</think>b</think>\n\nc\n") == "c\n");
  CHECK(ChatTemplate::without_thoughts("c\n") == "c\n");
}

TEST_CASE("chat_template: the sequences of bytes that only look like white space stay, on both sides") {
  for (const std::string text : {"\xE2@\x80x", "\xE2\x80@x", "\xF2\x80\x80\x80x", "\xC2\x41x", "\xE2\x80\x8Bx", "\x1Bx",
                                 "x\x08", "x!", "x\xE2\x81\x9E", "x\xE2\x81\xA0", "x\xE1\x9A\x81", "x\xE3\x80\x81"}) {
    CAPTURE(text);
    CHECK(data::strip(text) == text);
  }
}

TEST_CASE(
    "chat_template: qwen's templates begin with any turn, and without a question qwen3 has no place for thoughts") {
  const std::vector<Message> answers = {{"assistant", "A", "so"}, {"assistant", "B", "so"}},
                             result = {{"tool", "T"}, {"tool", "U"}};
  const std::string results =
      "<|im_start|>user\n<tool_response>\nT\n</tool_response>\n<tool_response>\nU\n</tool_response><|im_end|>\n";
  const auto qwen3 = ChatTemplate::named("qwen3");
  CHECK(qwen3.render(answers).text == "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n");
  CHECK(qwen3.render(result).text == results);
  CHECK(ChatTemplate::named("qwen3_instruct_2507").render(result).text == results);
}

TEST_CASE("chat_template: a system text that only says how smollm3 is to think is none") {
  const auto chat = ChatTemplate::named("smollm3");
  const std::vector<Message> talk = {{"user", "U"}, {"assistant", "A"}};
  const auto render = [&](const char* system, bool thinks) {
    std::vector<Message> turns = talk;
    if (system != nullptr) turns.insert(turns.begin(), {"system", system});
    return chat.render(turns, {.enable_thinking = thinks, .date = "2025-03-09"}).text;
  };
  const std::string thinking = render(nullptr, true), quiet = render(nullptr, false);
  CHECK(thinking != quiet);
  for (const bool thinks : {true, false}) {
    CHECK(render("/think", thinks) == thinking);
    CHECK(render("/no_think \n", thinks) == quiet);
    CHECK(render("/no_think /think", thinks) == quiet);
    CHECK(render("", thinks) == (thinks ? thinking : quiet));
  }
}

TEST_CASE("chat_template: tools follow the system text, the conversation's own even where it is empty") {
  const std::vector<io::Json> tools = {io::json_object({{"name", "f"}})};
  const auto begin = [&](const char* name, const std::vector<Message>& talk) {
    data::RenderOptions options;
    options.tools = tools;
    const std::string text = ChatTemplate::named(name).render(talk, options).text;
    return text.substr(0, text.find("# Tools"));
  };
  const std::vector<Message> plain = {{"user", "U"}}, own = {{"system", "S"}, {"user", "U"}},
                             empty = {{"system", ""}, {"user", "U"}};
  for (const char* name : {"qwen2_5_base", "qwen3", "qwen3_instruct_2507", "qwen3_thinking_2507"}) {
    CAPTURE(name);
    const bool has_own = std::string(name) == "qwen2_5_base";
    CHECK(begin(name, plain) ==
          (has_own ? "<|im_start|>system\nYou are a helpful assistant.\n\n" : "<|im_start|>system\n"));
    CHECK(begin(name, own) == "<|im_start|>system\nS\n\n");
    CHECK(begin(name, empty) == "<|im_start|>system\n\n\n");
  }
}

}  // namespace chat_template_test
