#include "chat_input.hpp"

#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "lora/core/error.hpp"
#include "lora/core/printable.hpp"
#include "lora/tokenizer/unicode.hpp"
#if defined(LORA_WITH_LIBEDIT)
#  include <histedit.h>
#endif

namespace {

using namespace lora;

enum class Byte { got, end, interrupt };

/// Waits for standard input. A signal that comes just before the wait is seen after a fifth of a second.
Byte wait_for_input(const std::function<bool()>& interrupted, const std::function<void()>& look = {}) {
  for (;;) {
    if (interrupted()) return Byte::interrupt;
    if (look) look();
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&input, 1, 200);
    if (ready > 0) return Byte::got;
    if (ready < 0 && errno != EINTR) return Byte::end;
  }
}

[[noreturn]] void fail_length(std::size_t longest) {
  fail<FormatError>("the line has more than ", longest, " bytes; a message may have so many");
}

void expect_utf8(const std::string& line) {
  const std::size_t at = lora::tokenizer::unicode::find_invalid_utf8(line);
  if (at < line.size())
    fail<FormatError>("byte ", at + 1, " of the line, ", printable(line.substr(at, 1)), ", is no valid UTF-8");
}

class Lines : public ChatInput {
 public:
  Lines(std::function<bool()> interrupted, std::size_t longest)
      : interrupted_(std::move(interrupted)), longest_(longest), shows_prompt_(::isatty(STDIN_FILENO) == 1) {}

  Got read(std::string& line, const char* prompt) override {
    if (shows_prompt_) {
      std::fputs(prompt, stdout);
      std::fflush(stdout);
    }
    line.clear();
    bool too_long = false, any = false;
    for (;;) {
      if (begin_ == buffer_.size() && !fill()) return Got::interrupt;
      if (buffer_.empty()) break;
      any = true;
      const auto end = buffer_.find('\n', begin_);
      const std::size_t count = std::min(end, buffer_.size()) - begin_;
      too_long = too_long || line.size() + count > longest_;
      if (!too_long) line.append(buffer_, begin_, count);
      begin_ += count;
      if (end == buffer_.npos) continue;
      ++begin_;
      break;
    }
    if (too_long) fail_length(longest_);
    if (!any) return Got::end;
    if (line.ends_with('\r')) line.pop_back();
    expect_utf8(line);
    return Got::line;
  }

 private:
  // False for an interrupt; at the end of the input the buffer is empty.
  bool fill() {
    buffer_.resize(1u << 16);
    begin_ = 0;
    for (;;) {
      const Byte ready = wait_for_input(interrupted_);
      if (ready == Byte::interrupt) {
        buffer_.clear();
        return false;
      }
      const ssize_t got = ::read(STDIN_FILENO, buffer_.data(), buffer_.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail<IoError>("cannot read standard input: ", std::generic_category().message(errno));
      buffer_.resize(static_cast<std::size_t>(got));
      return true;
    }
  }

  std::function<bool()> interrupted_;
  std::size_t longest_;
  bool shows_prompt_;
  std::string buffer_;
  std::size_t begin_ = 0;
};

}  // namespace

std::unique_ptr<ChatInput> read_lines(const std::function<bool()>& interrupted, std::size_t longest) {
  return std::make_unique<Lines>(interrupted, longest);
}

#if !defined(LORA_WITH_LIBEDIT)

std::unique_ptr<ChatInput> edit_lines(const std::function<bool()>&, std::vector<std::string>) { return nullptr; }
std::string_view line_editing() { return {}; }
void restore_terminal() {}

#else

namespace {

termios terminal_before{};
std::atomic<bool> edits{false};
std::atomic<bool> changed{false};  // the terminal's size, or who had it

/// libedit, which asks for its characters here, so that a signal ends a line and a stranger's byte does not.
class Editor : public ChatInput {
 public:
  Editor(std::function<bool()> interrupted, std::vector<std::string> words)
      : interrupted_(std::move(interrupted)), words_(std::move(words)) {
    // For the width of characters. Where the user's locale has no UTF-8, one that every Debian has.
    if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    ::tcgetattr(STDIN_FILENO, &terminal_before);
    editor_ = ::el_init("lora", stdin, stdout, stderr);
    history_ = ::history_init();
    if (editor_ == nullptr || history_ == nullptr) fail<IoError>("the terminal can't be used to edit lines");
    HistEvent event;
    ::history(history_, &event, H_SETSIZE, 1000);
    ::history(history_, &event, H_SETUNIQUE, 1);
    ::el_set(editor_, EL_CLIENTDATA, this);
    ::el_set(editor_, EL_EDITOR, "emacs");
    ::el_set(editor_, EL_HIST, ::history, history_);
    ::el_set(
        editor_, EL_PROMPT, +[](EditLine* editor) { return const_cast<char*>(of(editor).prompt_); });
    ::el_set(
        editor_, EL_ADDFN, "lora-complete", "Completes a command",
        +[](EditLine* editor, int) { return of(editor).complete(); });
    ::el_set(editor_, EL_BIND, "\t", "lora-complete", nullptr);
    ::el_source(editor_, nullptr);  // the user's ~/.editrc
    ::el_set(
        editor_, EL_GETCFN, +[](EditLine* editor, wchar_t* c) { return of(editor).next(*c); });
    struct sigaction action {};
    action.sa_handler = [](int) { changed = true; };
    sigemptyset(&action.sa_mask);
    for (const int number : {SIGWINCH, SIGCONT}) sigaction(number, &action, nullptr);
    edits = true;
  }
  ~Editor() override {
    edits = false;
    ::el_end(editor_);
    ::history_end(history_);
  }

  Got read(std::string& line, const char* prompt) override {
    prompt_ = prompt;
    typed_ = 0;
    too_long_ = broken_ = stopped_ = false;
    int count = 0;
    const char* text = ::el_gets(editor_, &count);
    if (stopped_) {
      std::fputs("\n", stdout);
      return Got::interrupt;
    }
    if (text == nullptr || count <= 0) {
      std::fputs("\n", stdout);
      return Got::end;
    }
    line.assign(text, static_cast<std::size_t>(count));
    while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
    if (too_long_) fail_length(longest);
    if (broken_) fail<FormatError>("the line has a byte that is no valid UTF-8");
    HistEvent event;
    if (!line.empty()) ::history(history_, &event, H_ENTER, line.c_str());
    return Got::line;
  }

 private:
  static constexpr std::size_t longest = 1u << 16;

  static Editor& of(EditLine* editor) {
    void* self = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Editor*>(self);
  }

  // -1: an interrupt, 0: the end.
  int byte() {
    const Byte ready = wait_for_input(interrupted_, [this] {
      if (!changed.exchange(false)) return;
      ::el_resize(editor_);
      ::el_set(editor_, EL_PREP_TERM, 0);
      ::el_set(editor_, EL_PREP_TERM, 1);
      ::el_set(editor_, EL_REFRESH);
    });
    if (ready != Byte::got) {
      stopped_ = ready == Byte::interrupt;
      return ready == Byte::interrupt ? -1 : 0;
    }
    unsigned char c = 0;
    return ::read(STDIN_FILENO, &c, 1) == 1 ? c + 1 : 0;
  }

  int next(wchar_t& character) {
    std::string bytes;
    for (;;) {
      if (pending_ > 0) bytes += static_cast<char>(std::exchange(pending_, 0) - 1);
      if (bytes.empty()) {
        const int got = byte();
        if (got <= 0) return got;
        bytes += static_cast<char>(got - 1);
      }
      const auto first = static_cast<unsigned char>(bytes[0]);
      const std::size_t size = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
      while (bytes.size() < size) {
        const int got = byte();
        if (got <= 0) return got;
        if ((static_cast<unsigned>(got - 1) & 0xC0u) != 0x80u) {  // no part of it: a character of its own
          pending_ = got;
          break;
        }
        bytes += static_cast<char>(got - 1);
      }
      const bool ends = bytes == "\n" || bytes == "\r";
      if (++typed_ > longest && !ends) {  // what is pasted past the limit is not even shown
        too_long_ = true;
        bytes.clear();
        continue;
      }
      if (utf8_step(bytes, 0).whole == bytes.size()) {
        character = static_cast<wchar_t>(size == 1 ? first : first & (0xFFu >> (size + 1)));
        for (std::size_t i = 1; i < size; ++i)
          character = static_cast<wchar_t>(character << 6 | (static_cast<unsigned char>(bytes[i]) & 0x3F));
      } else {
        broken_ = true;
        character = L'\uFFFD';
      }
      return 1;
    }
  }

  unsigned char complete() {
    const LineInfo* line = ::el_line(editor_);
    const std::string begun(line->buffer, line->cursor);
    std::vector<std::string> fitting;
    for (const std::string& word : words_)
      if (!begun.empty() && word.starts_with(begun)) fitting.push_back(word);
    if (fitting.empty()) return CC_ERROR;
    std::size_t common = fitting[0].size();
    for (const std::string& word : fitting)
      common = std::min<std::size_t>(
          common,
          static_cast<std::size_t>(std::mismatch(word.begin(), word.end(), fitting[0].begin(), fitting[0].end()).first -
                                   word.begin()));
    std::string rest = fitting[0].substr(begun.size(), common - begun.size());
    if (fitting.size() == 1) rest += ' ';
    if (!rest.empty()) return ::el_insertstr(editor_, rest.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    std::string list = "\n";
    for (const std::string& word : fitting) list += word + " ";
    std::fputs((list + "\n").c_str(), stdout);
    return CC_REDISPLAY;
  }

  std::function<bool()> interrupted_;
  std::vector<std::string> words_;
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  const char* prompt_ = "";
  int pending_ = 0;        // a byte that was read already, + 1
  std::size_t typed_ = 0;  // characters of this line
  bool too_long_ = false, broken_ = false, stopped_ = false;
};

}  // namespace

std::unique_ptr<ChatInput> edit_lines(const std::function<bool()>& interrupted, std::vector<std::string> words) {
  return std::make_unique<Editor>(interrupted, std::move(words));
}

std::string_view line_editing() { return "libedit"; }

void restore_terminal() {
  if (edits) ::tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

#endif
