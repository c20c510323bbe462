// The command chat by a pipe: lines and JSON lines, commands, and what is no message.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/random_model.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace chat_test {

using namespace lora;

namespace {

/// The model that tests/make/chat_turns.py has taught a conversation.
struct Subject {
  test::TempFolder temp;

  test::Outcome chat(const std::string& input, std::vector<std::string> words = {}) const {
    io::write_file(temp / "input", std::string_view(input));
    words.insert(words.begin(), {"chat", "--model_name_or_path=" + (io::Path(LORA_FIXTURES) / "chat").native(),
                                 "--dtype=float32", "--threads=1"});
    return test::run_program(LORA_PROGRAM, words, {}, (temp / "input").native());
  }
  test::Outcome kind(const std::string& input, std::vector<std::string> words = {}) const {
    words.push_back("--system=Be kind.");
    return chat(input, std::move(words));
  }
};

constexpr const char* hello = "<think>\nA greeting.\n</think>\n\nHello! \u4f60\u597d\n";
constexpr const char* four = "<think>\nTwo twice.\n\nFour.\n</think>\n\nIt is 4.\n";

std::string last_line(std::string text) {
  REQUIRE(text.ends_with('\n'));
  text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

TEST_CASE("program: chat answers each line of a pipe, in one conversation") {
  const Subject s;
  const auto outcome = s.kind("Hi\n\n2+2?\nBye");
  CHECK(outcome.status == 0);
  CHECK(outcome.output == std::string(hello) + four + "Goodbye!\n");
  CHECK(s.kind("Hi\r\n").output == hello);
  CHECK(s.chat("/system Be kind.\nHi\n").output == hello);
  CHECK(s.kind("Hi\n", {"--enable_thinking=false"}).output != hello);
  CHECK(s.kind("Hi\n", {"--stop=lo!"}).output == "<think>\nA greeting.\n</think>\n\nHel\n");
  CHECK(s.kind("").output.empty());
}

TEST_CASE("program: chat takes JSON lines and answers in JSON lines, reasoning apart") {
  const Subject s;
  const std::string input =
      "{\"role\": \"system\", \"content\": \"Be kind.\"}\n{\"role\": \"user\", \"content\": \"Hi\"}\n\n"
      "{\"role\": \"user\", \"content\": \"2+2?\"}\n{\"content\": \"Bye\", \"role\": \"user\"}\n";
  auto lines = test::json_lines(s.chat(input, {"--jsonl"}).output);
  REQUIRE(lines.size() == 3);
  for (io::Json& line : lines) {
    CHECK(line.at("tokens_per_second").get<double>() > 0);
    line.erase("tokens_per_second");
  }
  const auto answer = [](const char* content, const char* reasoning, int tokens) {
    io::Json json = {{"role", "assistant"}, {"content", content}};
    if (*reasoning != '\0') json["reasoning_content"] = reasoning;
    json["tokens"] = tokens;
    json["finish_reason"] = "stop";
    return json;
  };
  CHECK(lines[0] == answer("Hello! \u4f60\u597d", "A greeting.", 30));
  CHECK(lines[1] == answer("It is 4.", "Two twice.\n\nFour.", 31));
  CHECK(lines[2] == answer("Goodbye!", "", 8));
  const auto cut = s.chat("{\"role\": \"user\", \"content\": \"/exit\"}\n", {"--jsonl", "--max_new_tokens=3"});
  CHECK(test::json_lines(cut.output).at(0).at("finish_reason") == "length");
  CHECK(last_line(cut.errors) == "the answer was cut: max_new_tokens is 3");
}

TEST_CASE("program: chat's commands clear, retry, save, set the system prompt and end") {
  const Subject s;
  CHECK(s.kind("Hi\n/retry\n").output == std::string(hello) + hello);
  CHECK(s.kind("2+2?\n/clear\nHi\n").output.ends_with(hello));
  CHECK(s.kind("Hi\n/exit\nHi\n").output == hello);
  CHECK(test::holds(s.kind("/help\n").errors, "/save FILE: "));
  CHECK(last_line(s.kind("/system\n").errors) == "system prompt: Be kind.");
  CHECK(last_line(s.kind("/system none\n/system\n").errors) == "system prompt: none of its own");
  const std::string file = (s.temp / "talk.jsonl").native();
  const auto saved = s.kind("Hi\n/save " + file + "\n");
  CHECK(last_line(saved.errors) == "saved as " + file + ": 3 messages");
  const std::string line =
      "{\"messages\":[{\"role\":\"system\",\"content\":\"Be kind.\"},{\"role\":\"user\",\"content\":\"Hi\"},"
      "{\"role\":\"assistant\",\"content\":\"Hello! \u4f60\u597d\",\"reasoning_content\":\"A greeting.\"}]}\n";
  CHECK(io::read_file(file) == line);
  const auto again = s.kind("2+2?\n/save " + file + "\n");
  CHECK(again.status == 1);
  CHECK(last_line(again.errors) == "error: standard input:2: cannot save as " + file + ": File exists");
  CHECK(io::read_file(file) == line);
  for (const auto& entry : std::filesystem::directory_iterator(s.temp.path()))
    CHECK_FALSE(test::holds(entry.path().filename().native(), "partial"));
}

TEST_CASE("program: what is no message of a chat is told with its line") {
  const Subject s;
  const auto said = [&](const std::string& input, std::vector<std::string> words = {}) {
    const auto outcome = s.kind(input, std::move(words));
    CHECK(outcome.status == 1);
    return last_line(outcome.errors);
  };
  const std::string begin = "error: standard input:";
  CHECK(said("\n/sve x\n") == begin +
                                  "2: unknown command /sve; /help lists them; a message that begins with / has a space "
                                  "before it");
  CHECK(said("/save\n") == begin + "1: /save takes the name of a new file");
  CHECK(said("/save x\n") == begin + "1: there is nothing to save yet");
  CHECK(said("/clear x\n") == begin + "1: /clear takes nothing, given x");
  CHECK(said("/retry\n") == begin + "1: there is no answer to try again");
  CHECK(said("a\xFFz\n") == begin + "1: byte 2 of the line, \\xFF, is no valid UTF-8");
  CHECK(said(std::string(10u << 20, 'x') + "\n") ==
        begin + "1: the line has more than 1048576 bytes; a message may have so many");
  CHECK(said(std::string(600, 'x') + "\n")
            .starts_with(begin + "1: the message is too long: with what the template writes around it, it has 637 "));
  CHECK(said("[1]\n", {"--jsonl"}) == begin + "1: message: expected an object");
  CHECK(said("{\"role\": \"tool\", \"content\": \"\"}\n", {"--jsonl"}) ==
        begin + "1: message: \"role\" is \"tool\"; expected user or system");
  CHECK(said("{\"role\": \"user\", \"content\": 1}\n", {"--jsonl"}) ==
        begin + "1: message: \"content\" must be a string, found 1");
  CHECK(said("{\"role\": \"user\", \"content\": \"\", \"name\": \"n\"}\n", {"--jsonl"}) ==
        begin + "1: message: unknown field \"name\"; expected role and content");
}

TEST_CASE("program: chat ends where nobody takes its answers") {
  const Subject s;
  io::write_file(s.temp / "input", std::string_view("Hi\n"));
  const std::vector<std::string> words = {"chat",
                                          "--model_name_or_path=" + (io::Path(LORA_FIXTURES) / "chat").native()};
  const auto outcome = test::run_program(LORA_PROGRAM, words, "/dev/full", (s.temp / "input").native());
  CHECK(outcome.status == 1);
  CHECK(last_line(outcome.errors) == "error: cannot write standard output: No space left on device");
}

TEST_CASE("program: chat reads a line's escapes by a pipe, and tells what no longer fits") {
  const Subject s;
  const std::string file = (s.temp / "talk.jsonl").native();
  (void)s.kind("a\\nb\\\\n\\t\n/save " + file + "\n", {"--max_new_tokens=2"});
  CHECK(test::json_lines(io::read_file(file)).at(0).at("messages").at(1).at("content") == "a\nb\\n\\t");
  const auto full = s.kind("Hi\n2+2?\nBye\n", {"--max_model_len=130", "--max_new_tokens=48"});
  CHECK(full.status == 0);
  CHECK(last_line(full.errors) ==
        "the conversation no longer fits into 130 tokens: the model does not see its first 2 turns any more, only the "
        "system prompt and what followed");
}

namespace {

/// What is said behind the line of what the program computes with.
std::string said_behind(const test::Outcome& outcome) {
  const auto at = outcome.errors.find("; computing in float32\n");
  REQUIRE(at != outcome.errors.npos);
  return outcome.errors.substr(outcome.errors.find('\n', at) + 1);
}

}  // namespace

TEST_CASE("program: chat's commands say what they do, each its own, with nothing but spaces behind them") {
  const Subject s;
  const auto said = [&](const std::string& input, std::vector<std::string> words = {}) {
    words.push_back("--max_new_tokens=1");
    const auto outcome = s.chat(input, std::move(words));
    CHECK(outcome.status == 0);
    return said_behind(outcome);
  };
  const std::string cut = "the answer was cut: max_new_tokens is 1\n";
  CHECK(said("/help\n") ==
        "/clear: forgets all turns but the system prompt\n"
        "/retry: answers the last message again\n"
        "/save FILE: writes the conversation into a new file, as a record of train's\n"
        "/system TEXT: sets the system prompt, none: the template's own; without a text, tells it\n"
        "/help: lists these\n"
        "/exit: ends, as Ctrl-D does\n");
  CHECK(said("/system\n/system  a \x1B b  \n/system  \n") ==
        "system prompt: none of its own\nsystem prompt: a \\x1B b\n");
  CHECK(said("Hi\n/retry \n") ==
        cut + "greedy answers are the same each time; sample or a temperature draws others\n" + cut);
  CHECK(said("Hi\n/retry\n", {"--temperature=1"}) == cut + cut);
  CHECK(said(" /exit\n/clear  \n/exit  \nHi\n") == cut);  // a space before it makes a message of it
  const std::string file = (s.temp / "talk.jsonl").native();
  CHECK(said("a\\\n/save " + file + "\n/save /dev/null\n/clear\n") ==
        cut + "saved as " + file + ": 2 messages\nsaved as /dev/null: 2 messages\n");
  CHECK(test::json_lines(io::read_file(file)).at(0).at("messages").at(0) ==
        io::Json{{"role", "user"}, {"content", "a\\"}});
}

TEST_CASE("program: chat tells that the context cuts an answer, and that the model was not made for so long a one") {
  const Subject s;
  const std::string full = "the answer was cut: all of the conversation has 70 tokens, and may have no more\n";
  const auto cut = s.chat("Hi\n", {"--max_model_len=70"});
  CHECK(said_behind(cut) == full);
  const auto json = s.chat("{\"role\": \"user\", \"content\": \"Hi\"}\n", {"--max_model_len=70", "--jsonl"});
  CHECK(said_behind(json) == full);
  CHECK(test::json_lines(json.output).at(0).at("finish_reason") == "length");
  const std::string warning =
      "Warning: max_model_len: 513 tokens, but the model was made for 512 (max_position_embeddings and its rope "
      "scaling): what it computes past them may be poor\n";
  CHECK(s.chat("", {"--max_model_len=513"}).errors.starts_with(warning));
  CHECK_FALSE(test::holds(s.chat("", {"--max_model_len=512"}).errors, "Warning"));
}

TEST_CASE("program: chat refuses a max_model_len that is longer than the model computes") {
  const Subject s;
  test::write_talking_model(s.temp / "phi3", DType::f32, test::longrope_model(40));
  const auto chat = [&](const char* length) {
    return test::run_program(LORA_PROGRAM, {"chat", "--model_name_or_path=" + (s.temp / "phi3").native(),
                                            "--template=chatml", concat("--max_model_len=", length)});
  };
  CHECK(chat("40").status == 0);
  const auto refused = chat("41");
  CHECK(refused.status == 2);
  CHECK(refused.errors ==
        "error: max_model_len: 41 tokens, but beyond 40 the model's longrope scaling has other factors, which are not "
        "supported; allowed: no more\n");
}

TEST_CASE("program: chat refuses what it can't read or write, a line of one byte too many among it") {
  const Subject s;
  const auto refused = [](const test::Outcome& outcome) {
    CHECK(outcome.status == 1);
    return last_line(outcome.errors);
  };
  const std::string most(std::size_t{1} << 20, 'x');
  CHECK(test::holds(refused(s.chat(most + "\n")), ":1: the message is too long: with what the template writes "));
  CHECK(test::holds(refused(s.chat(most)), ":1: the message is too long: "));
  CHECK(refused(s.chat("\n" + most + "x\nHi\n")) ==
        "error: standard input:2: the line has more than 1048576 bytes; a message may have so many");
  CHECK(refused(s.chat("Hi\n/save /no/such/folder/x\n", {"--max_new_tokens=1"})) ==
        "error: standard input:2: cannot create /no/such/folder/x: No such file or directory");
  CHECK(refused(s.chat("{\"content\": \"a\"}\n", {"--jsonl"})) ==
        "error: standard input:1: message: \"role\" is missing");
  const std::vector<std::string> words = {"chat",
                                          "--model_name_or_path=" + (io::Path(LORA_FIXTURES) / "chat").native()};
  CHECK(refused(test::run_program(LORA_PROGRAM, words, {}, s.temp.path().native())) ==
        "error: cannot read standard input: Is a directory");
}

TEST_CASE("program: chat says that an adapter belongs to another base, and to which") {
  const Subject s;
  test::write_foreign_adapter(s.temp / "foreign");
  const auto outcome = s.chat("Hi\n", {"--adapter_name_or_path=" + (s.temp / "foreign").native()});
  CHECK(outcome.status == 1);
  CHECK(outcome.output.empty());
  CHECK(outcome.errors.ends_with(test::foreign_adapter_message));
}

namespace {

/// Writes a model that answers each message with a call of a tool. Of each token it knows the next: the embedding tells
/// tokens apart, layers add nothing, and the head has what follows. Marks of calls are tokens that are not special, as
/// published ones are.
std::string write_calling_model(const io::Path& folder) {
  constexpr const char* parts[] = {"<tool_call>", "\n{\"name\": \"ping\", \"arguments\": {}}\n", "</tool_call>"};
  test::RandomModel shape;
  shape.vocabulary = shape.hidden = 263;
  auto tensors = test::random_tensors(shape);
  for (auto& tensor : tensors) {
    if (tensor.name.ends_with("o_proj.weight") || tensor.name.ends_with("down_proj.weight"))
      std::fill(tensor.values.begin(), tensor.values.end(), 0);
    const bool is_head = tensor.name == "lm_head.weight";
    if (!is_head && tensor.name != "model.embed_tokens.weight") continue;
    std::fill(tensor.values.begin(), tensor.values.end(), 0);
    const auto set = [&](std::size_t row, std::size_t column) { tensor.values[row * 263 + column] = 1; };
    if (is_head)
      for (const auto& [token, next] : {std::pair<int, int>('\n', 260), {260, 261}, {261, 262}, {262, 257}})
        set(static_cast<std::size_t>(next), static_cast<std::size_t>(token));
    else
      for (std::size_t id = 0; id < 263; ++id) set(id, id);
  }
  test::write_model(folder, test::config_json(shape), tensors, DType::f32);
  io::Json tokenizer = io::parse_json(test::byte_tokenizer_json(parts), "tokenizer.json");
  for (io::Json& token : tokenizer["added_tokens"]) token["special"] = token["id"] < 260;
  io::write_json(folder / "tokenizer.json", tokenizer);
  io::write_json(folder / "tokenizer_config.json", {{"eos_token", "<|im_end|>"}});
  return concat(parts[0], parts[1], parts[2]);
}

}  // namespace

TEST_CASE("program: chat writes a call of a tool whole, as text of the answer, in each turn") {
  const test::TempFolder temp;
  const std::string call = write_calling_model(temp / "model");
  const auto chat = [&](const char* input, std::vector<std::string> words) {
    io::write_file(temp / "input", std::string_view(input));
    words.insert(words.begin(), {"chat", "--model_name_or_path=" + (temp / "model").native(), "--template=qwen3",
                                 "--dtype=float32", "--max_new_tokens=8"});
    const auto outcome = test::run_program(LORA_PROGRAM, words, {}, (temp / "input").native());
    CAPTURE(outcome.errors);
    REQUIRE(outcome.status == 0);
    return outcome.output;
  };
  CHECK(chat("Hi\nAgain\n", {}) == call + "\n" + call + "\n");
  const auto lines = test::json_lines(chat("{\"role\": \"user\", \"content\": \"Hi\"}\n", {"--jsonl"}));
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].at("content") == call);
  CHECK(lines[0].at("finish_reason") == "stop");
  CHECK_FALSE(lines[0].contains("reasoning_content"));
  CHECK_FALSE(lines[0].contains("tool_calls"));
}

TEST_CASE("program: chat on an NPU says over two turns what it says on a processor") {
  const Subject s;
  const test::Environment stand_in("LORA_ASCEND_LIBRARIES", LORA_STAND_IN);
  const test::Environment leaks("STAND_IN_CHECK_LEAKS", "1");
  const auto outcome = s.kind("Hi\n2+2?\n", {"--device=ascend"});
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 0);
  CHECK(outcome.output == std::string(hello) + four);
  CHECK(test::holds(outcome.errors, ", NPU 0; "));
  CHECK_FALSE(test::holds(outcome.errors, "stand-in"));
}

}  // namespace chat_test
