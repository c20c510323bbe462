#pragma once

#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/jinja/lexer.hpp"
#include "lora/jinja/python_text.hpp"

namespace lora::jinja::detail {

inline bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
inline bool is_in_name(char c) { return begins_name(c) || is_digit(c); }

/// Follows the rules of jinja2/lexer.py with trim_blocks and lstrip_blocks.
class Lexer {
 public:
  Lexer(std::string_view text, const std::string& name) : source_(with_newlines(text)), name_(name) {
    if (source_.ends_with('\n')) source_.pop_back();
    rest_ = source_;
  }

  std::vector<Token> run() {
    while (!rest_.empty()) data();
    add(Token::Kind::end, here());
    return std::move(tokens_);
  }

 private:
  struct Tag {
    std::size_t bytes;  // of the tag with its sign
    char kind;          // %, { or #, or r of raw
    char sign;          // -, + or 0
  };

  Place here() {
    const std::size_t at = source_.size() - rest_.size();
    for (; counted_ < at; counted_ += bytes_at(source_, counted_))
      if (source_[counted_] == '\n') {
        ++place_.line;
        place_.column = 1;
      } else {
        ++place_.column;
      }
    return place_;
  }

  void add(Token::Kind kind, Place place, std::string text = {}) { tokens_.push_back({kind, place, std::move(text)}); }

  template <class... Parts>
  [[noreturn]] void fail(Place place, const Parts&... parts) const {
    fail_at(name_, place, parts...);
  }

  void skip(std::size_t bytes) {
    begins_line_ = bytes > 0 && rest_[bytes - 1] == '\n';
    rest_.remove_prefix(bytes);
  }
  void skip_white() {
    while (const std::size_t bytes = white_space_at(rest_, 0)) skip(bytes);
  }
  static std::string_view without_white(std::string_view text) { return strip_left(text); }

  /// What ends a block's tag or a comment here: bytes, 0 if nothing does.
  static std::size_t end_of_tag(std::string_view text, std::string_view closing, bool trims) {
    const bool dash = text.starts_with('-'), plus = trims && text.starts_with('+');
    const std::string_view end = text.substr(dash || plus ? 1 : 0);
    if (!end.starts_with(closing)) return 0;
    const std::string_view behind = end.substr(closing.size());
    std::size_t bytes = text.size() - behind.size();
    if (dash) bytes += behind.size() - without_white(behind).size();
    if (trims && !dash && !plus && behind.starts_with('\n')) ++bytes;
    return bytes;
  }

  /// The tag at a place where {%, {{ or {# stands.
  static Tag tag_at(std::string_view text) {
    Tag tag{2, text[1], '\0'};
    if (text.size() > 2 && (text[2] == '-' || text[2] == '+')) {
      tag.sign = text[2];
      ++tag.bytes;
    }
    if (tag.kind != '%') return tag;
    std::string_view inside = without_white(text.substr(tag.bytes));
    if (!inside.starts_with("raw")) return tag;
    inside = without_white(inside.substr(3));
    const bool dash = inside.starts_with('-');
    if (!inside.substr(dash ? 1 : 0).starts_with("%}")) return tag;
    inside.remove_prefix(dash ? 3 : 2);
    if (dash) inside = without_white(inside);
    return {text.size() - inside.size(), 'r', tag.sign};
  }

  /// Text before a tag, without the white space that is not written.
  std::string_view stripped(std::string_view text, char sign, bool output) const {
    if (sign == '-') return strip_right(text);
    if (sign == '+' || output) return text;
    const std::size_t line = text.rfind('\n') + 1;
    return (line > 0 || begins_line_) && without_white(text.substr(line)).empty() ? text.substr(0, line) : text;
  }

  void add_data(std::string_view text, Place place) {
    if (!text.empty()) add(Token::Kind::data, place, std::string(text));
  }

  void data() {
    std::size_t at = 0;
    while (at < rest_.size() && !(rest_[at] == '{' && at + 1 < rest_.size() &&
                                  (rest_[at + 1] == '%' || rest_[at + 1] == '{' || rest_[at + 1] == '#')))
      ++at;
    const Place place = here();
    if (at == rest_.size()) {
      add_data(rest_, place);
      rest_ = {};
      return;
    }
    const Tag tag = tag_at(rest_.substr(at));
    add_data(stripped(rest_.substr(0, at), tag.sign, tag.kind == '{'), place);
    rest_.remove_prefix(at);
    const Place begin = here();
    skip(tag.bytes);
    if (tag.kind == '#') return comment(begin);
    if (tag.kind == 'r') return raw(begin);
    add(tag.kind == '{' ? Token::Kind::output_begin : Token::Kind::block_begin, begin);
    inside(tag.kind == '{', begin);
  }

  void comment(Place begin) {
    for (std::size_t at = 0; at < rest_.size(); ++at)
      if (const std::size_t bytes = end_of_tag(rest_.substr(at), "#}", true)) return skip(at + bytes);
    fail(begin, "the comment has no end; expected #}");
  }

  void raw(Place begin) {
    for (std::size_t at = rest_.find("{%"); at != rest_.npos; at = rest_.find("{%", at + 1)) {
      std::string_view tag = rest_.substr(at + 2);
      const char sign = tag.starts_with('-') || tag.starts_with('+') ? tag[0] : '\0';
      if (sign != '\0') tag.remove_prefix(1);
      tag = without_white(tag);
      if (!tag.starts_with("endraw")) continue;
      tag = without_white(tag.substr(6));
      const std::size_t end = end_of_tag(tag, "%}", true);
      if (end == 0) continue;
      add_data(stripped(rest_.substr(0, at), sign, false), here());
      return skip(rest_.size() - tag.size() + end);
    }
    fail(begin, "raw has no end; expected endraw");
  }

  /// The tokens of a tag, up to its end.
  void inside(bool output, Place begin) {
    std::string open;  // brackets, in which nothing ends the tag
    while (true) {
      skip_white();
      if (rest_.empty()) fail(begin, "the tag has no end; expected ", output ? "}}" : "%}");
      const Place place = here();
      if (open.empty()) {
        if (const std::size_t bytes = end_of_tag(rest_, output ? "}}" : "%}", !output)) {
          add(output ? Token::Kind::output_end : Token::Kind::block_end, place);
          return skip(bytes);
        }
      }
      const char c = rest_[0];
      if (is_digit(c)) {
        number(place);
      } else if (begins_name(c)) {
        std::size_t bytes = 1;
        while (bytes < rest_.size() && is_in_name(rest_[bytes])) ++bytes;
        add(Token::Kind::name, place, std::string(rest_.substr(0, bytes)));
        skip(bytes);
      } else if (c == '\'' || c == '"') {
        text(place);
      } else {
        sign(place, open);
      }
    }
  }

  void sign(Place place, std::string& open) {
    constexpr std::array<std::string_view, 25> signs = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                        "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                        ">",  "<",  "=",  ".",  ":",  "|",  ","};
    for (const std::string_view sign : signs) {
      if (!rest_.starts_with(sign)) continue;
      const char c = sign[0];
      if (c == '[' || c == '(' || c == '{') open += c == '[' ? ']' : c == '(' ? ')' : '}';
      if (c == ']' || c == ')' || c == '}') {
        if (!open.ends_with(c))
          fail(place, "found ", c, "; expected ",
               open.empty() ? std::string("the tag's end") : open.substr(open.size() - 1));
        open.pop_back();
      }
      add(Token::Kind::sign, place, std::string(sign));
      return skip(sign.size());
    }
    fail(place, "found ", rest_.substr(0, bytes_at(rest_, 0)), ", which begins no expression");
  }

  /// Digits of this base, which may have _ between them, from `at` on; where they end.
  std::size_t digits(std::size_t at, int base) const {
    const auto is = [&](std::size_t i) {
      if (i >= rest_.size()) return false;
      const char c = rest_[i];
      return base == 16 ? is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') : c >= '0' && c < '0' + base;
    };
    while (is(at) || (at < rest_.size() && rest_[at] == '_' && is(at + 1))) ++at;
    return at;
  }

  void number(Place place) {
    const auto lower = [&](std::size_t i) { return i < rest_.size() ? static_cast<char>(rest_[i] | 0x20) : '\0'; };
    int base = 10;
    if (rest_[0] == '0') base = lower(1) == 'x' ? 16 : lower(1) == 'o' ? 8 : lower(1) == 'b' ? 2 : 10;
    const bool prefixed = base != 10 && digits(2, base) > 2;
    if (!prefixed) base = 10;
    std::size_t end = prefixed ? digits(2, base) : digits(0, 10);
    bool real = false;
    const std::size_t at = source_.size() - rest_.size();
    if (!prefixed && source_[at - 1] != '.') {
      if (end + 1 < rest_.size() && rest_[end] == '.' && is_digit(rest_[end + 1])) {
        end = digits(end + 1, 10);
        real = true;
      }
      const std::size_t exponent =
          end + (end + 1 < rest_.size() && (rest_[end + 1] == '+' || rest_[end + 1] == '-') ? 2u : 1u);
      if (lower(end) == 'e' && exponent < rest_.size() && is_digit(rest_[exponent])) {
        end = digits(exponent, 10);
        real = true;
      }
    }
    std::string written;
    for (const char c : rest_.substr(prefixed ? 2 : 0, end - (prefixed ? 2 : 0)))
      if (c != '_') written += c;
    Token token{real ? Token::Kind::real : Token::Kind::whole, place, std::string(rest_.substr(0, end))};
    if (!real && base == 10 && written.size() > 1 && written.find_first_not_of('0') != written.npos &&
        written[0] == '0')
      fail(place, "found ", std::string_view(token.text), "; a number begins with no 0");
    const char* const last = written.data() + written.size();
    const auto read = real ? std::from_chars(written.data(), last, token.real)
                           : std::from_chars(written.data(), last, token.whole, base);
    if (read.ec != std::errc() || read.ptr != last)
      fail(place, "the number ", std::string_view(token.text), "; expected one of 64 bits");
    tokens_.push_back(std::move(token));
    skip(end);
  }

  void text(Place place) {
    const char quote = rest_[0];
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2u : 1u;
    if (end >= rest_.size()) fail(place, "the text has no end; expected ", quote);
    add(Token::Kind::text, place, unescaped(rest_.substr(1, end - 1), place));
    skip(end + 1);
  }

  std::string unescaped(std::string_view raw, Place place) const {
    std::string text;
    for (std::size_t at = 0; at < raw.size(); ++at) {
      if (raw[at] != '\\') {
        text += raw[at];
        continue;
      }
      const char c = raw[++at];  // the text's end is behind a character that is not escaped
      constexpr std::string_view letters = "\\'\"abfnrtv", meant = "\\'\"\a\b\f\n\r\t\v";
      if (const auto known = letters.find(c); known != letters.npos) {
        text += meant[known];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        add_escaped(text, raw.substr(at + 1, count), count, 16, place);
        at += count;
      } else if (c >= '0' && c <= '7') {
        std::size_t count = 1;
        while (count < 3 && at + count < raw.size() && raw[at + count] >= '0' && raw[at + count] <= '7') ++count;
        add_escaped(text, raw.substr(at, count), count, 8, place);
        at += count - 1;
      } else if (c == 'N' || static_cast<unsigned char>(c) >= 0x80) {
        fail(place, "the text has \\", raw.substr(at, bytes_at(raw, at)), ", which is not supported");
      } else if (c != '\n') {
        text += {'\\', c};
      }
    }
    return text;
  }

  void add_escaped(std::string& text, std::string_view digits, std::size_t count, int base, Place place) const {
    std::uint32_t code = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    if (digits.size() < count || read.ec != std::errc() || read.ptr != digits.data() + digits.size() ||
        code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail(place, "the text has \\ with ", digits, "; expected the ", count, " digits of a character");
    add_code_point(text, code);
  }

  std::string source_;
  std::string_view rest_;
  const std::string& name_;
  bool begins_line_ = true;
  std::size_t counted_ = 0;
  Place place_{};
  std::vector<Token> tokens_;
};

}  // namespace lora::jinja::detail

namespace lora::jinja {

LORA_INLINE std::vector<Token> tokens_of(std::string_view text, const std::string& name) {
  if (text.size() > most_template_bytes)
    lora::fail<FormatError>(name, ": it has ", text.size(), " bytes; expected at most ", most_template_bytes);
  for (std::size_t at = 0; at < text.size(); at += bytes_at(text, at))
    if (utf8_step(text, at).whole == 0) lora::fail<FormatError>(name, ": it is no UTF-8");
  return detail::Lexer(text, name).run();
}

}  // namespace lora::jinja
