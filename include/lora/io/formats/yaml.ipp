#pragma once

#if defined(LORA_WITH_YAML)
#  include <yaml-cpp/eventhandler.h>
#  include <yaml-cpp/exceptions.h>
#  include <yaml-cpp/parser.h>
#endif

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "lora/core/config.hpp"
#include "lora/io/formats/yaml.hpp"

namespace lora::io::detail {

LORA_INLINE bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The place of a byte.
LORA_INLINE YamlPlace yaml_place_of(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const std::string_view line = before.substr(before.rfind('\n') + 1);  // npos + 1 is 0
  return {1 + std::count(before.begin(), before.end(), '\n'), 1 + std::ssize(line)};
}

/// Whether a tab is among the spaces that a line begins with.
LORA_INLINE bool begins_with_tab(std::string_view text, const YamlPlace& place) {
  for (Index line = 1; line < place.line && !text.empty(); ++line)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text.substr(0, text.find_first_not_of(" \t")).find('\t') != text.npos;
}

/// Throws   FormatError for what is no text: yaml-cpp would replace bytes, or take one of them for the end
LORA_INLINE void expect_yaml_text(std::string_view text, const std::string& where) {
  for (std::size_t at = 0; at < text.size();) {
    const auto step = utf8_step(text, at);
    if (step.whole == 0)
      fail<FormatError>(place_in(where, yaml_place_of(text, at)), ": found bytes that are no UTF-8, expected UTF-8");
    const auto c = static_cast<unsigned char>(text[at]);
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F)
      fail<FormatError>(place_in(where, yaml_place_of(text, at)), ": found the control character ", text.substr(at, 1),
                        ", expected a text");
    at += step.whole;
  }
}

/// Where the innermost bracket stands that is open before a place, as far as can be told without parsing: for a hint.
LORA_INLINE std::optional<YamlPlace> open_bracket(std::string_view text, std::size_t end) {
  std::vector<std::size_t> open;
  char before = '\n';  // what is no space, in the same line
  for (std::size_t at = 0; at < std::min(end, text.size()); ++at) {
    const char c = text[at];
    const bool begins =
        before == '\n' || before == ':' || before == '-' || before == '[' || before == '{' || before == ',';
    if ((c == '"' || c == '\'') && begins) {
      const bool twice = c == '\'';  // it stands for itself
      for (++at; at < end; ++at) {
        if (text[at] == c && !(twice && text.substr(at + 1).starts_with(c))) break;
        if (text[at] == c || (!twice && text[at] == '\\')) ++at;
      }
    } else if (c == '#' && (at == 0 || text[at - 1] == ' ' || text[at - 1] == '\n')) {
      at = std::min(text.find('\n', at), end) - 1;
    } else if ((c == '[' || c == '{') && (begins || !open.empty())) {
      open.push_back(at);
    } else if ((c == ']' || c == '}') && !open.empty()) {
      open.pop_back();
    }
    if (c != ' ' && c != '\t' && c != '\r') before = c;
  }
  return open.empty() ? std::nullopt : std::optional(yaml_place_of(text, open.back()));
}

#if defined(LORA_WITH_YAML)

/// Builds the nodes from the parser's events. yaml-cpp's own nodes say nothing of quotes, and take a key twice.
class YamlBuilder final : public YAML::EventHandler {
 public:
  YamlBuilder(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  YamlNode take() { return std::move(root_); }
  bool is_done() const { return documents_ > 0; }
  /// Where the innermost list or map begins that has not ended.
  const YamlNode* innermost() const { return open_.empty() ? nullptr : &open_.back().node; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) refuse(place_of(mark), "found a second document, expected one");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (!open_.empty() && open_.back().key) expect_colon(open_.back());
    put({.kind = YamlNode::Kind::null, .place = place_of(mark)}, anchor, mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end())
      refuse(place_of(mark), "found an alias of what it stands in, which would have no end");
    nodes_ += found->second.nodes;
    bytes_ += found->second.bytes;
    expect_few(mark);
    YamlNode copy = found->second.node;
    copy.place = place_of(mark);
    add(std::move(copy), mark);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool plain = tag == "?";
    expect_no_tag(mark, tag);
    if (!plain) (void)end_of_quote(begin_of_text(mark));
    put({.kind = YamlNode::Kind::scalar, .place = place_of(mark), .text = value, .plain = plain}, anchor, mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override {
    merge(open_.back());
    close();
  }

 private:
  struct Open {
    YamlNode node{};
    YAML::anchor_t anchor = YAML::NullAnchor;
    YAML::Mark mark{};
    std::size_t nodes = 0, bytes = 0;  // that were there before
    std::optional<YamlNode> key{};     // whose value comes next
    YAML::Mark key_mark{};
    bool merges = false;  // that key is <<
    std::set<std::string> names{};
    std::optional<YamlNode> merged{};  // the value of <<
  };
  struct Anchored {
    YamlNode node;
    std::size_t nodes, bytes;
  };

  template <class... Parts>
  [[noreturn]] void refuse(const YamlPlace& place, const Parts&... parts) const {
    fail<FormatError>(place_in(where_, place), ": ", parts...);
  }
  static YamlPlace place_of(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

  void expect_no_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    refuse(place_of(mark), "found the tag ", std::string_view(tag),
           ", expected none: what a value is follows from its key");
  }
  void expect_few(const YAML::Mark& mark) const {
    if (nodes_ > most_yaml_nodes || bytes_ > most_yaml_bytes)
      refuse(place_of(mark), "with its aliases the document has more than ", most_yaml_nodes, " values or ",
             most_yaml_bytes >> 20u, " MiB of texts, expected settings");
  }
  static constexpr std::string_view space = " \t\r\n";

  std::size_t behind_space(std::size_t at) const { return std::min(text_.find_first_not_of(space, at), text_.size()); }

  // Where a scalar begins that may have an anchor, whose place the mark is then.
  std::size_t begin_of_text(const YAML::Mark& mark) const {
    const std::size_t at = behind_space(static_cast<std::size_t>(mark.pos));
    return at < text_.size() && text_[at] == '&' ? behind_space(std::min(text_.find_first_of(space, at), text_.size()))
                                                 : at;
  }

  // Behind a scalar in quotes; where it begins if it is none, but a block. A quote without its other half ends, for
  // yaml-cpp, with the file.
  std::size_t end_of_quote(std::size_t at) const {
    if (at == text_.size() || (text_[at] != '"' && text_[at] != '\'')) return at;
    const char quote = text_[at];
    for (std::size_t next = at + 1; next < text_.size(); ++next) {
      if (quote == '"' && text_[next] == '\\') {
        ++next;
      } else if (text_[next] == quote) {
        if (quote == '"' || next + 1 == text_.size() || text_[next + 1] != quote) return next + 1;
        ++next;  // two of them are one that stands in the text
      }
    }
    refuse(yaml_place_of(text_, at), "found a quote that nothing ends, expected another ", std::string_view(&quote, 1));
  }

  // Behind a key: a text as it is written, or an alias.
  std::size_t end_of_key(const Open& map) const {
    std::size_t at = begin_of_text(map.key_mark);
    if (!map.key->plain) return end_of_quote(at);
    if (at < text_.size() && text_[at] == '*') return std::min(text_.find_first_of(" \t\r\n[]{},", at), text_.size());
    for (const char c : map.key->text)  // whose lines are joined by a space
      if (space.find(c) == space.npos) at = std::min(text_.find(c, at), text_.size() - 1) + 1;
    return at;
  }

  // A key that ends with its line, or whose colon stands in its quotes, is, for yaml-cpp, one whose value is null.
  void expect_colon(const Open& map) const {
    std::size_t at = behind_space(end_of_key(map));
    while (at < text_.size() && text_[at] == '#') at = behind_space(std::min(text_.find('\n', at), text_.size()));
    if (at < text_.size() && text_[at] == ':') return;
    const auto bracket = open_bracket(text_, begin_of_text(map.key_mark));
    refuse(map.key->place, "found ", std::string_view(first_word(map.key->text)),
           " alone, expected a key with a colon and a value behind it",
           std::string_view(
               bracket ? concat(", or a bracket that ends what begins at ", bracket->line, ":", bracket->column) : ""));
  }

  void put(YamlNode node, YAML::anchor_t anchor, const YAML::Mark& mark) {
    ++nodes_;
    bytes_ += node.text.size();
    expect_few(mark);
    if (anchor != YAML::NullAnchor) anchored_.insert_or_assign(anchor, Anchored{node, 1, node.text.size()});
    add(std::move(node), mark);
  }
  void add(YamlNode node, const YAML::Mark& mark) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& inner = open_.back();
    if (inner.node.kind == YamlNode::Kind::list) {
      inner.node.values.push_back(std::move(node));
    } else if (!inner.key) {
      begin_field(inner, std::move(node), mark);
    } else if (inner.merges) {
      inner.merged = std::move(node);
      inner.key.reset();
    } else {
      expect_text(inner);
      inner.node.keys.push_back({inner.key->text, inner.key->place});
      inner.key.reset();
      inner.node.values.push_back(std::move(node));
    }
  }
  void begin_field(Open& map, YamlNode key, const YAML::Mark& mark) const {
    if (key.kind != YamlNode::Kind::scalar)
      refuse(key.place, "found ",
             key.kind == YamlNode::Kind::null   ? "null"
             : key.kind == YamlNode::Kind::list ? "a list"
                                                : "a map",
             " as a key, expected a text");
    if (!map.names.insert(key.text).second) {
      const auto twin = std::find_if(map.node.keys.begin(), map.node.keys.end(),
                                     [&](const YamlKey& other) { return other.name == key.text; });
      refuse(key.place, "the key ", std::string_view(key.text), " stands here a second time",
             std::string_view(twin == map.node.keys.end() ? "" : concat(", the first is in line ", twin->place.line)));
    }
    map.merges = key.plain && key.text == "<<";
    map.key = std::move(key);
    map.key_mark = mark;
  }
  void expect_text(const Open& map) const {
    if (yaml_flag(*map.key) || (map.key->plain && yaml_number(map.key->text)))
      refuse(map.key->place, "found ", std::string_view(map.key->text),
             " as a key, expected a text; a text in quotes is one");
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    expect_no_tag(mark, tag);
    if (open_.size() == deepest_yaml) refuse(place_of(mark), "nested deeper than ", deepest_yaml, " levels");
    open_.push_back({.node = {.kind = kind, .place = place_of(mark)},
                     .anchor = anchor,
                     .mark = mark,
                     .nodes = nodes_,
                     .bytes = bytes_});
    ++nodes_;
    expect_few(mark);
  }
  void close() {
    Open ended = std::move(open_.back());
    open_.pop_back();
    if (ended.anchor != YAML::NullAnchor)
      anchored_.insert_or_assign(ended.anchor, Anchored{ended.node, nodes_ - ended.nodes, bytes_ - ended.bytes});
    add(std::move(ended.node), ended.mark);
  }

  // What << brings is there where the map has no such key of its own; of several maps the first one's.
  void merge(Open& map) const {
    if (!map.merged) return;
    const YamlNode& given = *map.merged;
    const bool several = given.kind == YamlNode::Kind::list;
    for (const YamlNode& from : std::span(several ? given.values.data() : &given, several ? given.values.size() : 1)) {
      if (from.kind != YamlNode::Kind::map)
        refuse(from.place, "found no map behind <<, expected the alias of a map, or a list of such");
      for (std::size_t i = 0; i < from.keys.size(); ++i) {
        if (!map.names.insert(from.keys[i].name).second) continue;
        map.node.keys.push_back(from.keys[i]);
        map.node.values.push_back(from.values[i]);
      }
    }
  }

  std::string_view text_;
  const std::string& where_;
  YamlNode root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Anchored> anchored_;
  std::size_t nodes_ = 0, bytes_ = 0;
  int documents_ = 0;
};

#endif

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE std::optional<bool> yaml_flag(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar || !node.plain) return std::nullopt;
  for (const std::string_view word : {"true", "yes", "on", "false", "no", "off"}) {
    std::string small(word), capitals(word), one(word);
    for (char& c : capitals) c = static_cast<char>(c - 'a' + 'A');
    one.front() = capitals.front();
    if (node.text == small || node.text == capitals || node.text == one)
      return word == "true" || word == "yes" || word == "on";
  }
  return std::nullopt;
}

LORA_INLINE std::optional<std::string> yaml_number(std::string_view text) {
  std::string number;
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t before = number.size();
    for (; at < text.size() && (detail::is_digit(text[at]) || (text[at] == '_' && number.size() > before)); ++at)
      if (text[at] != '_') number += text[at];
    return number.size() - before;
  };
  if (text.starts_with('-')) number = "-";
  if (text.starts_with('-') || text.starts_with('+')) at = 1;
  const std::size_t sign = number.size(), whole = digits();
  if (whole == 0) number += '0';
  std::size_t parts = 0;
  if (at < text.size() && text[at] == '.') {
    ++at;
    number += '.';
    parts = digits();
    if (parts == 0) number += '0';
  } else if (whole > 1 && number[sign] == '0') {
    return std::nullopt;  // in base eight, to some
  }
  if (whole + parts == 0) return std::nullopt;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    number += 'e';
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) number += text[at++];
    if (digits() == 0) return std::nullopt;
  }
  if (at != text.size()) return std::nullopt;
  while (number.size() > sign + 1 && number[sign] == '0' && detail::is_digit(number[sign + 1])) number.erase(sign, 1);
  return number;
}

LORA_INLINE std::string first_word(std::string_view text) {
  const std::size_t end = text.find_first_of(" \t\r\n");
  return concat(text.substr(0, end), end == text.npos ? "" : " ...");
}

LORA_INLINE std::string place_in(const std::string& where, const YamlPlace& place) {
  return concat(std::string_view(where), ":", place.line, ":", place.column);
}

LORA_INLINE YamlNode parse_yaml(std::string_view text, const std::string& where) {
  if (text.size() > yaml_file_limit)
    fail<FormatError>(std::string_view(where), ": it is longer than ", yaml_file_limit,
                      " bytes, the most that a file of settings in YAML may have");
  detail::expect_yaml_text(text, where);
#if defined(LORA_WITH_YAML)
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  detail::YamlBuilder builder(text, where);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {}
  } catch (const YAML::Exception& error) {
    const YamlNode* const open = builder.innermost();
    const bool unended = error.msg.starts_with("end of ") && open != nullptr;
    const YamlPlace place = unended ? open->place : YamlPlace{error.mark.line + 1, error.mark.column + 1};
    const auto bracket = error.msg == "illegal flow end"
                             ? detail::open_bracket(text, static_cast<std::size_t>(error.mark.pos))
                             : std::nullopt;
    const std::string opened =
        bracket ? concat(", expected the bracket that ends what begins at ", bracket->line, ":", bracket->column) : "";
    const std::string_view hint = bracket                                        ? std::string_view(opened)
                                  : unended                                      ? ", for what begins here"
                                  : error.msg.find(" tab ") != std::string::npos ? "; expected spaces"
                                  : detail::begins_with_tab(text, place)
                                      ? "; found a tab at the line's begin, expected spaces"
                                  : error.msg == "illegal map value" ? "; a text that has a colon needs quotes"
                                  : error.msg.find("EOF") != std::string::npos ? "; expected the other quote"
                                                                               : "";
    fail<FormatError>(place_in(where, place), ": no YAML: ", std::string_view(error.msg), hint);
  }
  if (!builder.is_done())
    fail<FormatError>(std::string_view(where), ": nothing stands in it, expected keys and their values");
  return builder.take();
#else
  fail<Error>(std::string_view(where), ": YAML, which this program was built without (yaml-cpp was not found); ",
              "expected JSON, with the same keys");
#endif
}

LORA_INLINE YamlNode read_yaml(const Path& path) { return parse_yaml(read_file(path, yaml_file_limit), path.native()); }

}  // namespace lora::io
