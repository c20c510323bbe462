#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "chat_input.hpp"
#include "commands.hpp"
#include "lora/core/log.hpp"
#include "lora/decode/conversation.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/inputs/sampling.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/json_view.hpp"
#include "open_model.hpp"
#include "prompt_options.hpp"
#include "signals.hpp"
#include "standard_output.hpp"

namespace {

using namespace lora;

std::atomic<bool> is_answering{false};
std::atomic<int> stop_answer{0};          // the options' stop
std::atomic<bool> is_interrupted{false};  // while a line is awaited

/// Ctrl-C ends an answer, or the wait for a line; a second one during an answer ends the program, as other signals do.
void on_signal(int number) {
  int earlier = 0;
  if (number == SIGINT && !is_answering) {
    is_interrupted = true;
    return;
  }
  if (number == SIGINT && stop_answer.compare_exchange_strong(earlier, number)) return;
  restore_terminal();
  end_at_once(128 + number);
}

struct CommandOfChat {
  std::string_view name, takes, does;
};
constexpr CommandOfChat commands_of_chat[] = {
    {"/clear", "", "forgets all turns but the system prompt"},
    {"/retry", "", "answers the last message again"},
    {"/save", "FILE", "writes the conversation into a new file, as a record of train's"},
    {"/system", "TEXT", "sets the system prompt, none: the template's own; without a text, tells it"},
    {"/help", "", "lists these"},
    {"/exit", "", "ends, as Ctrl-D does"},
};

/// A conversation of any device and precision.
struct Talker {
  decode::Transcript& transcript;
  std::function<decode::Answer(const std::function<void(const decode::Words&)>&)> answer;
};

io::Json as_json(const data::Message& message) {
  io::Json json = {{"role", message.role}, {"content", message.content}};
  if (message.reasoning) json["reasoning_content"] = *message.reasoning;
  return json;
}

/// Reads lines and answers them.
class Chat {
 public:
  Chat(const settings::Config& config, Talker talker) : config_(config), talker_(std::move(talker)) {
    const bool terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 && !config.jsonl;
    is_terminal_ = terminal;
    const char* kind = std::getenv("TERM");
    dims_ = terminal && kind != nullptr && std::string_view(kind) != "dumb";
    const auto interrupted = [] { return is_interrupted.exchange(false); };
    std::vector<std::string> words;
    for (const CommandOfChat& command : commands_of_chat) words.emplace_back(command.name);
    if (terminal) input_ = edit_lines(interrupted, std::move(words));
    if (!input_) input_ = read_lines(interrupted);
  }

  int run() {
    handle_ends(on_signal);
    if (is_terminal_)
      log::info("/help lists commands; Ctrl-C stops an answer; a line that ends with \\ goes on",
                line_editing().empty() ? "; this program was built without libedit: lines can't be edited" : "");
    while (!ended_) {
      std::string line;
      try {
        if (!read_turn(line)) break;
        if (is_interrupt_) {
          if (std::exchange(warned_, true) || !is_terminal_) return 128 + SIGINT;
          log::info("Ctrl-C again ends the program, as /exit does");
          continue;
        }
        warned_ = false;
        if (config_.jsonl) {
          take_json(line);
        } else {
          take_line(is_terminal_ ? line : unescaped(line));
        }
      } catch (const FormatError& error) {
        // A terminal's user can say it another way; what comes by a pipe is wrong.
        if (!is_terminal_) fail<FormatError>("standard input:", line_number_, ": ", std::string_view(error.what()));
        log::warn(std::string_view(error.what()));
      }
    }
    return 0;
  }

 private:
  // False at the end of the input.
  bool read_turn(std::string& line) {
    is_interrupt_ = false;
    std::string part;
    for (const char* prompt = "> ";; prompt = ". ") {
      ++line_number_;
      const auto got = input_->read(part, prompt);
      if (got == ChatInput::Got::end) return !line.empty();
      is_interrupt_ = got == ChatInput::Got::interrupt;
      if (is_interrupt_) return true;
      line += part;
      if (!is_terminal_ || !line.ends_with('\\')) return true;
      line.back() = '\n';
    }
  }

  static std::string unescaped(std::string_view line) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char next = line[i] == '\\' && i + 1 < line.size() ? line[i + 1] : '\0';
      if (next == 'n' || next == '\\') ++i;
      text += next == 'n' ? '\n' : line[i];
    }
    return text;
  }

  void take_json(const std::string& line) {
    if (line.empty()) return;
    const io::Json json = io::parse_json(line, "message");
    const auto view = io::JsonView::of_object(json, "message");
    for (const auto& [name, value] : io::json_fields(json))
      if (name != "role" && name != "content") view.fail("unknown field \"", name, "\"; expected role and content");
    const auto role = view.at<std::string>("role");
    auto content = view.at<std::string>("content");
    if (role == "system") {
      talker_.transcript.set_system(std::move(content));
    } else if (role == "user") {
      ask(std::move(content));
    } else {
      view.fail("\"role\" is \"", role, "\"; expected user or system");
    }
  }

  void take_line(const std::string& line) {
    if (line.empty()) return;
    if (line[0] != '/') return ask(line);
    const std::size_t space = std::min(line.find(' '), line.size()), begin = line.find_first_not_of(' ', space);
    command(line.substr(0, space), begin == line.npos ? "" : line.substr(begin));
  }

  void command(const std::string& name, std::string text) {
    while (text.ends_with(' ')) text.pop_back();
    decode::Transcript& transcript = talker_.transcript;
    const auto* known = std::find_if(std::begin(commands_of_chat), std::end(commands_of_chat),
                                     [&](const CommandOfChat& one) { return one.name == name; });
    if (known == std::end(commands_of_chat))
      fail<FormatError>("unknown command ", std::string_view(name),
                        "; /help lists them; a message that begins with / has a space before it");
    if (known->takes.empty() && !text.empty()) fail<FormatError>(name, " takes nothing, given ", text);
    if (name == "/exit") {
      ended_ = true;
    } else if (name == "/clear") {
      transcript.clear();
    } else if (name == "/help") {
      for (const CommandOfChat& one : commands_of_chat)
        log::info(one.name, one.takes.empty() ? "" : " ", one.takes, ": ", one.does);
    } else if (name == "/system") {
      if (!text.empty()) return transcript.set_system(text == "none" ? "" : std::move(text));
      log::info("system prompt: ", transcript.system().empty() ? "none of its own" : printable(transcript.system()));
    } else if (name == "/save") {
      save(text);
    } else {
      retry();
    }
  }

  void save(const std::string& name) const {
    const auto messages = talker_.transcript.messages();
    if (name.empty()) fail<FormatError>("/save takes the name of a new file");
    if (talker_.transcript.turns() == 0) fail<FormatError>("there is nothing to save yet");
    io::Json list = io::Json::array();
    for (const data::Message& message : messages) list.push_back(as_json(message));
    try {
      io::AtomicFile file{io::Path(name)};
      file.write(std::string_view(io::to_text(io::Json{{"messages", std::move(list)}}, -1) + "\n"));
      file.settle();
      // A link, unlike a rename, never takes the place of another file.
      if (file.direct()) {
        file.commit();
      } else if (::link(file.partial().c_str(), name.c_str()) != 0) {
        fail<IoError>("cannot save as ", std::string_view(name), ": ", std::generic_category().message(errno));
      }
    } catch (const IoError& error) {  // the conversation is there still, for another name
      fail<FormatError>(std::string_view(error.what()));
    }
    log::info("saved as ", std::string_view(name), ": ", messages.size(), " messages");
  }

  void retry() {
    decode::Transcript& transcript = talker_.transcript;
    if (!transcript.ends_with("assistant")) fail<FormatError>("there is no answer to try again");
    transcript.take_back();
    if (!config_.draws()) log::info("greedy answers are the same each time; sample or a temperature draws others");
    answer();
  }

  void ask(std::string words) {
    talker_.transcript.add({"user", std::move(words)});
    answer();
  }

  void answer() {
    decode::Answer answer;
    stop_answer = 0;
    is_answering = true;
    try {
      answer = talker_.answer([&](const decode::Words& words) { show(words); });
    } catch (...) {
      is_answering = false;
      talker_.transcript.take_back();
      throw;
    }
    is_answering = false;
    show_end(answer);
    if (answer.newly > 0)
      log::info("the conversation no longer fits into ", talker_.transcript.longest(),
                " tokens: the model does not see ", "its first ", answer.dropped,
                " turns any more, only the system prompt and what followed");
    using End = decode::Answer::End;
    if (answer.end == End::max_new_tokens) log::info("the answer was cut: max_new_tokens is ", answer.tokens);
    if (answer.end == End::context)
      log::info("the answer was cut: all of the conversation has ", talker_.transcript.longest(),
                " tokens, and may have no more");
    if (answer.end != End::stopped) return;
    warned_ = true;  // a second Ctrl-C, now, ends the program
    if (answer.tokens == 0) {
      talker_.transcript.take_back();
      talker_.transcript.take_back();
    }
    log::info(answer.tokens == 0 ? "stopped before the first token: the message is taken back" : "stopped");
  }

  void show(const decode::Words& words) {
    if (config_.jsonl) return;
    if (!words.reasoning.empty()) {
      if (!std::exchange(shows_reasoning_, true)) mark("\x1B[2m", "<think>\n");
      print_result(words.reasoning);
    }
    if (words.content.empty()) return;
    end_reasoning();
    print_result(words.content);
  }
  void end_reasoning() {
    if (std::exchange(shows_reasoning_, false)) mark("\x1B[0m\n\n", "\n</think>\n\n");
  }
  void mark(const char* dim, const char* plain) const { std::fputs(dims_ ? dim : plain, stdout); }

  void show_end(const decode::Answer& answer) {
    if (!config_.jsonl) {
      end_reasoning();
      print_result("\n");
      return;
    }
    io::Json json = as_json(answer.message);
    json["tokens"] = answer.tokens;
    json["tokens_per_second"] = answer.seconds > 0 ? static_cast<double>(answer.tokens) / answer.seconds : 0.0;
    using End = decode::Answer::End;
    json["finish_reason"] = answer.end == End::complete  ? "stop"
                            : answer.end == End::stopped ? "interrupted"
                                                         : "length";
    print_result(io::to_text(json, -1) + "\n");
  }

  const settings::Config& config_;
  Talker talker_;
  std::unique_ptr<ChatInput> input_;
  Index line_number_ = 0;
  bool is_terminal_ = false, dims_ = false, ended_ = false;
  bool is_interrupt_ = false;     // instead of the last line
  bool warned_ = false;           // that Ctrl-C ends the program
  bool shows_reasoning_ = false;  // the output stands within it
};

}  // namespace

int run_chat(Request& request) {
  const settings::Config& config = request.config;
  const auto source = inputs::open_source(config);
  const auto tokenizer = inputs::find_tokenizer(source.path());
  if (!tokenizer) inputs::fail_without_tokenizer(source.path());
  const tokenizer::ChatFiles taught = inputs::chat_files_of_adapter(config, *tokenizer);
  const std::optional<data::ChatTemplate> chat = inputs::template_of(config, *tokenizer, taught);
  inputs::refuse_unused_by(chat, config);
  const data::Encoder encoder(&*tokenizer, chat, prompt_options(config, source));

  decode::ConversationOptions options;
  options.generate.max_new_tokens = config.max_new_tokens.value_or(0);
  options.generate.sampling = inputs::sampling_of(config, source);
  options.generate.stop_ids = inputs::stop_ids(source, *tokenizer, chat, taught);
  options.generate.stopped = [] { return stop_answer.load() != 0; };
  options.stops = config.stop;
  options.longest = config.max_model_len.value_or(model::longest_sequence(source.config()));
  if (config.max_model_len) {
    inputs::expect_supported_length(source.config(), *config.max_model_len, "max_model_len:");
    inputs::warn_of_length(source.config(), *config.max_model_len, "max_model_len:");
  }

  int status = 0;
  inputs::with_device(config, [&](auto& dev) {
    with_decoder(dev, source, config, [&]<class D, class T>(model::Decoder<D, T>& decoder) {
      decode::Conversation<D, T> conversation(dev, decoder, *tokenizer, encoder, options);
      conversation.transcript().set_system(config.system.value_or(""));
      Talker talker{conversation.transcript(), [&](const auto& hear) { return conversation.answer(hear); }};
      status = Chat(config, std::move(talker)).run();
    });
  });
  return status;
}
