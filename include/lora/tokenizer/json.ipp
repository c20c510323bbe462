#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/json.hpp"

namespace lora::tokenizer {

LORA_INLINE void MergeList::add(std::string_view left, std::string_view right) {
  parts_.push_back({left.size(), right.size()});
  arena_.append(left).append(right);
}

LORA_INLINE std::vector<Bpe::Merge> MergeList::resolve(const Vocabulary& vocabulary, const std::string& where) const {
  std::vector<Bpe::Merge> merges;
  merges.reserve(parts_.size());
  std::size_t at = 0;
  std::string whole;
  for (const auto& [left_size, right_size] : parts_) {
    const auto left = std::string_view(arena_).substr(at, left_size);
    const auto right = std::string_view(arena_).substr(at + left_size, right_size);
    const auto left_id = vocabulary.find(left), right_id = vocabulary.find(right);
    const auto whole_id = vocabulary.find(std::string_view(arena_).substr(at, left_size + right_size));
    if (left_id < 0 || right_id < 0 || whole_id < 0)
      fail<FormatError>(where, ": merge ", merges.size(), " joins \"", left, "\" and \"", right, "\", but \"",
                        left_id < 0    ? left
                        : right_id < 0 ? right
                                       : std::string_view(arena_).substr(at, left_size + right_size),
                        "\" is not in the vocabulary");
    merges.push_back({left_id, right_id, whole_id});
    at += left_size + right_size;
  }
  return merges;
}

}  // namespace lora::tokenizer

namespace lora::tokenizer::detail {

/// Takes vocabulary and merges directly from the parser's events and passes the rest to a JsonBuilder: as Json values
/// they would need ten times the time and memory.
class TokenizerJsonHandler final : public nlohmann::json_sax<io::Json> {
 public:
  TokenizerJsonHandler(std::string_view text, TokenizerDocument& document)
      : document_(document), builder_(text, document.where, io::JsonPlace{}) {}

  bool null() override { return place_ == Place::settings ? builder_.null() : refuse("null"); }
  bool boolean(bool value) override {
    return place_ == Place::settings ? builder_.boolean(value) : refuse("a boolean");
  }
  bool number_integer(io::Json::number_integer_t value) override {
    return place_ == Place::settings ? builder_.number_integer(value) : number(value);
  }
  bool number_unsigned(io::Json::number_unsigned_t value) override {
    if (place_ == Place::settings) return builder_.number_unsigned(value);
    return number(value > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(value));
  }
  bool number_float(io::Json::number_float_t value, const io::Json::string_t& text) override {
    return place_ == Place::settings ? builder_.number_float(value, text) : refuse(text);
  }
  bool binary(io::Json::binary_t& value) override { return builder_.binary(value); }
  bool string(io::Json::string_t& value) override {
    switch (place_) {
      case Place::settings:
        return builder_.string(value);
      case Place::merges: {
        const auto space = value.find(' ');
        if (space == value.npos || value.find(' ', space + 1) != value.npos) return refuse(concat("\"", value, "\""));
        document_.merges.add(std::string_view(value).substr(0, space), std::string_view(value).substr(space + 1));
        return true;
      }
      case Place::merge:
        if (parts_ == 2) return refuse("three");
        pair_[parts_++] = value;
        return true;
      default:
        return refuse(concat("\"", value, "\""));
    }
  }
  bool key(io::Json::string_t& name) override {
    if (place_ == Place::vocabulary) {
      token_ = name;
      return true;
    }
    if (place_ != Place::settings) return refuse("an object");
    if (depth_ == 1) section_ = name;
    if (depth_ == 2) entry_ = name;
    return builder_.key(name);
  }
  bool start_object(std::size_t count) override {
    if (place_ != Place::settings) return refuse("an object");
    if (depth_ == 2 && section_ == "model" && entry_ == "vocab") place_ = Place::vocabulary;
    ++depth_;
    return builder_.start_object(count);
  }
  bool end_object() override {
    place_ = Place::settings;
    --depth_;
    return builder_.end_object();
  }
  bool start_array(std::size_t count) override {
    if (place_ == Place::merges) {
      place_ = Place::merge;
      parts_ = 0;
      return true;
    }
    if (place_ != Place::settings) return refuse("an array");
    if (depth_ == 2 && section_ == "model" && entry_ == "merges") place_ = Place::merges;
    ++depth_;
    return builder_.start_array(count);
  }
  bool end_array() override {
    if (place_ == Place::merge) {
      if (parts_ != 2) return refuse("one");
      document_.merges.add(pair_[0], pair_[1]);
      place_ = Place::merges;
      return true;
    }
    place_ = Place::settings;
    --depth_;
    return builder_.end_array();
  }
  bool parse_error(std::size_t position, const std::string& token, const io::Json::exception& error) override {
    return builder_.parse_error(position, token, error);
  }

  io::Json take() { return builder_.take(); }

 private:
  enum class Place { settings, vocabulary, merges, merge };

  bool number(std::int64_t value) {
    if (place_ != Place::vocabulary) return refuse(concat(value));
    document_.vocabulary.add(token_, value, document_.where);
    return true;
  }
  [[noreturn]] bool refuse(std::string_view found) const {
    if (place_ == Place::vocabulary)
      fail<FormatError>(document_.where, ": the id of token \"", token_, "\" must be an integer, found ", found);
    fail<FormatError>(document_.where, ": merge ", document_.merges.size(),
                      " must be two tokens, as \"a b\" or [\"a\", \"b\"], found ", found);
  }

  TokenizerDocument& document_;
  io::JsonBuilder builder_;
  Place place_ = Place::settings;
  int depth_ = 0;
  std::string section_, entry_;  // the last keys at depths 1 and 2
  std::string token_;
  std::string pair_[2];
  std::size_t parts_ = 0;
};

LORA_INLINE io::JsonView part_of(const io::JsonView& object, std::string_view key) {
  static const io::Json null;
  const auto part = object.find(key);
  return part ? *part : io::JsonView(null, object.place(), std::string(key));
}

LORA_INLINE std::string type_of(const io::JsonView& part) {
  return part.json().is_null() ? std::string("null") : part.at<std::string>("type");
}

LORA_INLINE void fail_part(const std::string& where, std::string_view part, std::string_view found,
                           std::string_view known) {
  fail<FormatError>(where, ": the ", part, " ", found, " is not supported; ", known, " is");
}

/// Calls f(item) for each value of a required array.
template <class F>
void for_each_of(const io::JsonView& part, std::string_view key, F&& f) {
  const io::JsonView list = part_of(part, key);
  if (!list.json().is_array()) part.fail("\"", key, "\" must be an array");
  for (std::size_t i = 0; i < list.json().size(); ++i) f(list.element(i));
}

/// The text that a pattern finds. Regular expressions are not followed here.
LORA_INLINE std::string read_literal(const io::JsonView& part, const std::string& type) {
  const io::JsonView pattern = part_of(part, "pattern");
  if (pattern.json().is_object() && pattern.has("Regex"))
    part.fail("the pattern of ", type, " is a regular expression, ", pattern.at<std::string>("Regex"),
              "; expected a text, \"String\"");
  std::string text = pattern.at<std::string>("String");
  if (text.empty()) part.fail("the pattern of ", type, " is \"\"; expected a text that is not empty");
  return text;
}

LORA_INLINE void read_normalizer(const io::JsonView& part, Normalizer& result) {
  using Kind = Normalizer::Step::Kind;
  const std::string type = type_of(part);
  if (type == "null") return;
  if (type == "Sequence")
    return for_each_of(part, "normalizers", [&](const io::JsonView& item) { read_normalizer(item, result); });
  if (type == "NFC") {
    if (!result.is_nfc()) result.add({.kind = Kind::nfc});
  } else if (type == "Prepend") {
    if (auto text = part.at<std::string>("prepend"); !text.empty())
      result.add({.kind = Kind::prepend, .to = std::move(text)});
  } else if (type == "Replace") {
    std::string from = read_literal(part, type);
    result.add({.kind = Kind::replace, .from = std::move(from), .to = part.at<std::string>("content")});
  } else {
    fail_part(part.where(), "normalizer", type, "NFC, Prepend, Replace or a Sequence of them");
  }
}

LORA_INLINE PreTokenizer::Behavior read_behavior(const io::JsonView& part) {
  const auto name = part.at<std::string>("behavior");
  using Behavior = PreTokenizer::Behavior;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "Removed") return Behavior::removed;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  part.fail("the behavior ", name, " of pre-tokenizer Split is not known");
}

LORA_INLINE PreTokenizer::Stage read_split(const io::JsonView& part) {
  PreTokenizer::Stage stage;
  stage.behavior = read_behavior(part);
  stage.invert = part.get<bool>("invert").value_or(false);
  const io::JsonView pattern = part_of(part, "pattern");
  if (const auto literal = pattern.get<std::string>("String"); literal && !literal->empty()) {
    stage.kind = PreTokenizer::Stage::Kind::literal;
    stage.literal = *literal;
    return stage;
  }
  const auto regex = pattern.at<std::string>("Regex");
  stage.kind = PreTokenizer::Stage::Kind::words;
  stage.pattern = WordPattern::from_regex(regex);
  if (!stage.pattern) part.fail("the regular expression of pre-tokenizer Split is not one of those known: ", regex);
  return stage;
}

/// What Metaspace writes for a space: one character.
LORA_INLINE std::string read_mark(const io::JsonView& part) {
  std::string mark = part.at<std::string>("replacement");
  if (mark.empty() || unicode::code_point_at(mark, 0).bytes != mark.size())
    part.fail("\"replacement\" of Metaspace is \"", mark, "\"; expected one character");
  return mark;
}

/// Whether Metaspace puts a mark before a text that has none, and if so, only before the first part of a whole.
LORA_INLINE std::optional<Normalizer::Step::Kind> read_prepend_scheme(const io::JsonView& part) {
  using Kind = Normalizer::Step::Kind;
  const std::string scheme = part.has("prepend_scheme") ? part.at<std::string>("prepend_scheme") : "always";
  if (scheme != "always" && scheme != "first" && scheme != "never")
    part.fail("\"prepend_scheme\" of Metaspace is ", scheme, "; expected always, first or never");
  if (!part.get<bool>("add_prefix_space").value_or(true) && scheme != "never")
    part.fail("\"add_prefix_space\" of Metaspace is false, but \"prepend_scheme\" is ", scheme, "; expected never");
  if (scheme == "never") return std::nullopt;
  return scheme == "first" ? Kind::mark_first : Kind::mark;
}

LORA_INLINE void read_metaspace(const io::JsonView& part, BpeSteps& result) {
  if (!result.marks.empty() || !result.pre_tokenizer.empty())
    part.fail("the pre-tokenizer Metaspace after another is not supported; expected it first");
  const std::string mark = read_mark(part);
  result.marks.add({.kind = Normalizer::Step::Kind::replace, .from = " ", .to = mark});
  if (const auto kind = read_prepend_scheme(part)) result.marks.add({.kind = *kind, .to = mark});
  if (!part.get<bool>("split").value_or(true)) return;
  PreTokenizer::Stage stage;
  stage.kind = PreTokenizer::Stage::Kind::literal;
  stage.literal = mark;
  stage.behavior = PreTokenizer::Behavior::merged_with_next;
  result.pre_tokenizer.add(std::move(stage));
}

LORA_INLINE bool read_pre_tokenizer(const io::JsonView& part, BpeSteps& result) {
  using Stage = PreTokenizer::Stage;
  const std::string type = type_of(part);
  if (type == "Sequence") {
    bool byte_level = false;
    for_each_of(part, "pretokenizers", [&](const io::JsonView& item) {
      if (byte_level) part.fail("a pre-tokenizer after ByteLevel is not supported");
      byte_level = read_pre_tokenizer(item, result);
    });
    return byte_level;
  }
  Stage stage;
  if (type == "null") {
    return false;
  } else if (type == "Split") {
    result.pre_tokenizer.add(read_split(part));
  } else if (type == "Metaspace") {
    read_metaspace(part, result);
  } else if (type == "Digits") {
    stage.kind = Stage::Kind::digits;
    const bool individual = part.get<bool>("individual_digits").value_or(false);
    stage.behavior = individual ? PreTokenizer::Behavior::isolated : PreTokenizer::Behavior::contiguous;
    result.pre_tokenizer.add(std::move(stage));
  } else if (type == "ByteLevel") {
    if (part.get<bool>("use_regex").value_or(true)) stage.pattern = WordPattern::gpt2();
    const bool prefix = part.get<bool>("add_prefix_space").value_or(true);
    if (prefix) stage.kind = Stage::Kind::prefix;
    if (prefix || stage.pattern) result.pre_tokenizer.add(std::move(stage));
    return true;
  } else {
    fail_part(part.where(), "pre-tokenizer", type, "Split, Digits, Metaspace, ByteLevel or a Sequence of them");
  }
  return false;
}

LORA_INLINE AddedToken read_added_token(const io::JsonView& item, std::int32_t id) {
  const auto flag = [&](std::string_view key) { return item.get<bool>(key).value_or(false); };
  return {id,
          item.at<std::string>("content"),
          flag("special"),
          flag("normalized"),
          flag("lstrip"),
          flag("rstrip"),
          flag("single_word")};
}

LORA_INLINE std::vector<AddedToken> read_added_tokens(const io::JsonView& settings) {
  std::vector<AddedToken> tokens;
  if (!settings.has("added_tokens")) return tokens;
  for_each_of(settings, "added_tokens",
              [&](const io::JsonView& item) { tokens.push_back(read_added_token(item, item.at<std::int32_t>("id"))); });
  return tokens;
}

LORA_INLINE void read_post_processor(const io::JsonView& part, SpecialFrame& frame) {
  const std::string type = type_of(part);
  if (type == "null" || type == "ByteLevel") return;  // ByteLevel only trims the ends of tokens
  if (type == "Sequence")
    return for_each_of(part, "processors", [&](const io::JsonView& item) { read_post_processor(item, frame); });
  if (type != "TemplateProcessing")
    fail_part(part.where(), "post-processor", type, "ByteLevel, TemplateProcessing or a Sequence of them");
  // The tokenizers library takes the text and what was added to it for two texts then.
  if (!frame.before.empty() || !frame.after.empty())
    part.fail("a template after one that adds tokens is not supported");
  const io::JsonView special = part_of(part, "special_tokens");
  bool after = false;
  for_each_of(part, "single", [&](const io::JsonView& item) {
    if (item.has("Sequence")) {
      if (after) part.fail("a template with its text twice is not supported");
      after = true;
      return;
    }
    const auto name = part_of(item, "SpecialToken").at<std::string>("id");
    const auto ids = part_of(special, name).at<std::vector<std::int32_t>>("ids");
    auto& side = after ? frame.after : frame.before;
    side.insert(side.end(), ids.begin(), ids.end());
  });
  if (!after) part.fail("a template without its text is not supported");
}

/// Of a byte-level vocabulary.
LORA_INLINE void check_decoder(const io::JsonView& part) {
  const std::string type = type_of(part);
  if (type == "Sequence") {
    for_each_of(part, "decoders", [](const io::JsonView& item) { check_decoder(item); });
  } else if (type != "ByteLevel") {
    fail_part(part.where(), "decoder", type, "ByteLevel, as the pre-tokenizer is byte-level,");
  }
}

/// How often Strip takes a character away.
LORA_INLINE std::size_t read_count(const io::JsonView& part, std::string_view key) {
  const auto count = part.at<std::int64_t>(key);
  if (count < 0) part.fail("\"", key, "\" is ", count, "; expected 0 or more");
  return static_cast<std::size_t>(count);
}

LORA_INLINE void read_decoder(const io::JsonView& part, TokenDecoder& result) {
  using Kind = TokenDecoder::Step::Kind;
  const std::string type = type_of(part);
  if (type == "Sequence") {
    for_each_of(part, "decoders", [&](const io::JsonView& item) { read_decoder(item, result); });
  } else if (type == "Replace") {
    std::string from = read_literal(part, type);
    result.add({.kind = Kind::replace, .from = std::move(from), .to = part.at<std::string>("content")});
  } else if (type == "ByteFallback") {
    result.add({.kind = Kind::bytes});
  } else if (type == "Fuse") {
    result.add({.kind = Kind::fuse});
  } else if (type == "Strip") {
    std::string from = part.at<std::string>("content");
    if (from.empty() || unicode::code_point_at(from, 0).bytes != from.size())
      part.fail("\"content\" of Strip is \"", from, "\"; expected one character");
    if (const auto stop = read_count(part, "stop"); stop != 0)
      part.fail("\"stop\" of Strip is ", stop, ", which is not supported; 0 is");
    result.add({.kind = Kind::strip, .from = std::move(from), .count = read_count(part, "start")});
  } else if (type == "Metaspace") {
    result.add({.kind = Kind::marks, .from = read_mark(part), .leading = read_prepend_scheme(part).has_value()});
  } else if (type == "ByteLevel") {
    part.fail("the decoder is byte-level, but the pre-tokenizer is not: it must end with ByteLevel");
  } else {
    fail_part(part.where(), "decoder", type, "Replace, ByteFallback, Fuse, Strip, Metaspace or a Sequence of them");
  }
}

}  // namespace lora::tokenizer::detail

namespace lora::tokenizer {

LORA_INLINE TokenizerDocument parse_tokenizer_json(std::string_view text, std::string where) {
  TokenizerDocument document;
  document.where = std::move(where);
  detail::TokenizerJsonHandler handler(text, document);
  io::send_events(text, handler);
  document.settings = handler.take();
  if (!document.settings.is_object()) fail<FormatError>(document.where, ": must be a JSON object");
  return document;
}

LORA_INLINE std::unique_ptr<BpeModel> bpe_model(TokenizerDocument&& document) {
  const io::JsonView settings(document.settings, document.where);
  const io::JsonView model = detail::part_of(settings, "model");
  if (!model.json().is_object()) settings.fail("\"model\" is missing");
  const std::string type = model.get<std::string>("type").value_or("BPE");
  if (type != "BPE") detail::fail_part(model.where(), "model", type, "BPE");
  const auto refuse = [&](std::string_view setting) { settings.fail("the model's ", setting, " is not supported"); };
  if (model.get<double>("dropout").value_or(0) != 0) refuse("dropout");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.get<std::string>(key).value_or("").empty()) refuse(key);
  if (const auto vocab = model.find("vocab"); vocab && !vocab->json().is_object())
    settings.fail("the model's \"vocab\" must be an object of tokens and ids");
  if (const auto merges = model.find("merges"); merges && !merges->json().is_array())
    settings.fail("the model's \"merges\" must be an array");
  if (document.vocabulary.count() == 0) settings.fail("the vocabulary is empty");

  BpeSteps steps;
  detail::read_normalizer(detail::part_of(settings, "normalizer"), steps.normalizer);
  const bool is_byte_level = detail::read_pre_tokenizer(detail::part_of(settings, "pre_tokenizer"), steps);
  if (const auto growth = steps.marks.growth(steps.normalizer.growth()); growth > detail::most_growth)
    settings.fail("the normalizer and the pre-tokenizer may make a text ", growth, " times as long; expected at most ",
                  detail::most_growth, " times");
  const io::JsonView decoder = detail::part_of(settings, "decoder");
  CharacterRules characters{.byte_tokens = model.get<bool>("byte_fallback").value_or(false),
                            .fuse_unknown = model.get<bool>("fuse_unk").value_or(false)};
  const auto unknown_token = model.get<std::string>("unk_token");
  if (is_byte_level) {
    detail::check_decoder(decoder);
    if (characters.byte_tokens) refuse("byte_fallback with a byte-level pre-tokenizer");
    if (characters.fuse_unknown && unknown_token) refuse("fuse_unk with a byte-level pre-tokenizer");
    characters = {};
  } else {
    detail::read_decoder(decoder, steps.decoder.emplace());
    if (const auto growth = steps.decoder->growth(); growth > detail::most_growth)
      decoder.fail("the decoder may make a text ", growth, " times as long; expected at most ", detail::most_growth,
                   " times");
    document.vocabulary = document.vocabulary.as_text(document.where);
  }
  const std::int32_t unknown = unknown_token ? document.vocabulary.find(*unknown_token) : -1;
  if (unknown_token && unknown < 0) settings.fail("the unk_token \"", *unknown_token, "\" is not in the vocabulary");
  auto merges = document.merges.resolve(document.vocabulary, document.where);
  const bool ignore_merges = model.get<bool>("ignore_merges").value_or(false);
  return std::make_unique<BpeModel>(
      Bpe(std::move(document.vocabulary), std::move(merges), ignore_merges, unknown, characters), std::move(steps));
}

LORA_INLINE std::string tokenizer_json_text(const io::Json& settings, const Bpe& bpe) {
  const Vocabulary& vocabulary = bpe.vocabulary();
  io::Json vocab = io::Json::object(), merges = io::Json::array();
  auto& entries = vocab.get_ref<io::Json::object_t&>();
  entries.reserve(vocabulary.count());
  for (std::int32_t id = 0; id < vocabulary.end(); ++id)
    if (vocabulary.has(id)) entries.emplace_back(vocabulary.text(id), id);
  for (const auto& merge : bpe.merges()) {
    std::string left = vocabulary.text(merge.left), right = vocabulary.text(merge.right);
    if (vocabulary.is_text())  // whose tokens may have spaces
      merges.push_back(io::Json::array({std::move(left), std::move(right)}));
    else
      merges.push_back(concat(left, " ", right));
  }
  io::Json document = settings;
  document["model"]["vocab"] = std::move(vocab);
  document["model"]["merges"] = std::move(merges);
  return io::to_text(document);
}

}  // namespace lora::tokenizer
