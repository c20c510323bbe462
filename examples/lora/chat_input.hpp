#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// Where the lines of a conversation come from.
class ChatInput {
 public:
  enum class Got { line, end, interrupt };

  virtual ~ChatInput() = default;

  /// Reads a line, without its end; `prompt` stands before it on a terminal. An interrupt is the signal that
  /// `interrupted` tells of.
  /// Throws   FormatError for a line that is too long or no UTF-8
  virtual Got read(std::string& line, const char* prompt) = 0;
};

/// Standard input as it is: a pipe, a file, or a terminal without line editing. A line has at most `longest` bytes.
std::unique_ptr<ChatInput> read_lines(const std::function<bool()>& interrupted, std::size_t longest = 1u << 20);

/// A terminal with line editing: arrows recall lines, Tab completes one that begins as one of `words` does. Null where
/// this program was built without it.
std::unique_ptr<ChatInput> edit_lines(const std::function<bool()>& interrupted, std::vector<std::string> words);

/// Who edits lines; empty if nobody does.
std::string_view line_editing();

/// Puts the terminal back as it was before its lines were edited; async-signal-safe.
void restore_terminal();
