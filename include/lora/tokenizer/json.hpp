#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/json.hpp"
#include "lora/tokenizer/added.hpp"
#include "lora/tokenizer/model.hpp"

namespace lora::tokenizer {

/// The merges as written, by rank, until the vocabulary is whole.
class MergeList {
 public:
  void add(std::string_view left, std::string_view right) {
    parts_.push_back({left.size(), right.size()});
    arena_.append(left).append(right);
  }
  std::size_t size() const { return parts_.size(); }

  std::vector<Bpe::Merge> resolve(const Vocabulary& vocabulary, const std::string& where) const {
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

 private:
  struct Part {
    std::size_t left, right;
  };
  std::string arena_;
  std::vector<Part> parts_;
};

/// A tokenizer.json taken apart: the vocabulary and the merges of its model, and the settings, which are all the rest.
struct TokenizerDocument {
  std::string where;  ///< names the file in errors
  io::Json settings;
  Vocabulary vocabulary;
  MergeList merges;
};

namespace detail {

/// Takes the vocabulary and the merges out of the parser's events and leaves the rest to a JsonBuilder: as Json values
/// they would take ten times the time and memory.
class TokenizerJsonHandler final : public nlohmann::json_sax<io::Json> {
 public:
  TokenizerJsonHandler(std::string_view text, TokenizerDocument& document)
      : document_(document), builder_(text, document.where, 1) {}

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

/// The "type" of a part, and null's.
inline std::string type_of_part(const io::Json& part, const std::string& where, std::string_view name) {
  return part.is_null() ? std::string("null") : io::json_at<std::string>(part, "type", concat(where, ": ", name));
}

[[noreturn]] inline void fail_part(const std::string& where, std::string_view part, std::string_view found,
                                   std::string_view known) {
  fail<FormatError>(where, ": the ", part, " ", found, " is not supported; ", known, known.empty() ? "" : " is");
}

inline const io::Json& part_of(const io::Json& object, std::string_view key) {
  static const io::Json null;
  const io::Json* value = io::json_find(object, key);
  return value ? *value : null;
}

inline const io::Json::array_t& list_of(const io::Json& part, std::string_view key, const std::string& where) {
  const io::Json& list = part_of(part, key);
  if (!list.is_array()) fail<FormatError>(where, ": \"", key, "\" must be an array");
  return list.get_ref<const io::Json::array_t&>();
}

/// Whether the normaliser is normal form C; the other that is known is none.
inline bool read_normalizer(const io::Json& part, const std::string& where) {
  const std::string type = type_of_part(part, where, "normalizer");
  if (type == "null") return false;
  if (type == "NFC") return true;
  if (type == "Sequence") {
    bool nfc = false;
    for (const io::Json& item : list_of(part, "normalizers", where)) nfc = read_normalizer(item, where) || nfc;
    return nfc;
  }
  fail_part(where, "normalizer", type, "NFC");
}

inline PreTokenizer::Behavior read_behavior(const std::string& name, const std::string& where) {
  using Behavior = PreTokenizer::Behavior;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "Removed") return Behavior::removed;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  fail<FormatError>(where, ": the behavior ", name, " of pre-tokenizer Split is not known");
}

inline PreTokenizer::Stage read_split(const io::Json& part, const std::string& where) {
  PreTokenizer::Stage stage;
  stage.behavior = read_behavior(io::json_at<std::string>(part, "behavior", where), where);
  stage.invert = io::json_get<bool>(part, "invert", where).value_or(false);
  const io::Json& pattern = part_of(part, "pattern");
  if (const auto literal = io::json_get<std::string>(pattern, "String", where); literal && !literal->empty()) {
    stage.kind = PreTokenizer::Stage::Kind::literal;
    stage.literal = *literal;
    return stage;
  }
  const auto regex = io::json_at<std::string>(pattern, "Regex", where + ": pre-tokenizer Split");
  stage.kind = PreTokenizer::Stage::Kind::words;
  stage.pattern = WordPattern::from_regex(regex);
  if (!stage.pattern)
    fail<FormatError>(where, ": the regular expression of pre-tokenizer Split is not one of those known: ", regex);
  return stage;
}

/// Adds the stages of a pre-tokeniser; ByteLevel must come last, for it turns text into bytes. Returns whether it came.
inline bool read_pre_tokenizer(const io::Json& part, const std::string& where, PreTokenizer& result) {
  using Stage = PreTokenizer::Stage;
  const std::string type = type_of_part(part, where, "pre_tokenizer");
  if (type == "Sequence") {
    bool byte_level = false;
    for (const io::Json& item : list_of(part, "pretokenizers", where)) {
      if (byte_level) fail<FormatError>(where, ": a pre-tokenizer after ByteLevel is not supported");
      byte_level = read_pre_tokenizer(item, where, result);
    }
    return byte_level;
  }
  if (type == "Split") {
    result.add(read_split(part, where));
  } else if (type == "Digits") {
    Stage stage;
    stage.kind = Stage::Kind::digits;
    const bool individual = io::json_get<bool>(part, "individual_digits", where).value_or(false);
    stage.behavior = individual ? PreTokenizer::Behavior::isolated : PreTokenizer::Behavior::contiguous;
    result.add(std::move(stage));
  } else if (type == "ByteLevel") {
    Stage stage;
    if (io::json_get<bool>(part, "use_regex", where).value_or(true)) stage.pattern = WordPattern::gpt2();
    const bool prefix = io::json_get<bool>(part, "add_prefix_space", where).value_or(true);
    if (prefix) stage.kind = Stage::Kind::prefix;
    if (prefix || stage.pattern) result.add(std::move(stage));
    return true;
  } else {
    fail_part(where, "pre-tokenizer", type, "Split, Digits, ByteLevel or a Sequence of them");
  }
  return false;
}

inline AddedToken read_added_token(const io::Json& item, std::int32_t id, const std::string& where) {
  const auto flag = [&](std::string_view key) { return io::json_get<bool>(item, key, where).value_or(false); };
  return {id,
          io::json_at<std::string>(item, "content", where),
          flag("special"),
          flag("normalized"),
          flag("lstrip"),
          flag("rstrip"),
          flag("single_word")};
}

inline std::vector<AddedToken> read_added_tokens(const io::Json& settings, const std::string& where) {
  std::vector<AddedToken> tokens;
  if (!io::json_find(settings, "added_tokens")) return tokens;
  const std::string place = where + ": added_tokens";
  for (const io::Json& item : list_of(settings, "added_tokens", where))
    tokens.push_back(read_added_token(item, io::json_at<std::int32_t>(item, "id", place), place));
  return tokens;
}

}  // namespace detail

/// Ids that go before and after a text where special tokens are asked for.
struct SpecialFrame {
  std::vector<std::int32_t> before, after;
};

namespace detail {

inline void read_post_processor(const io::Json& part, const std::string& where, SpecialFrame& frame) {
  const std::string type = type_of_part(part, where, "post_processor");
  if (type == "null" || type == "ByteLevel") return;  // ByteLevel only trims the ends of tokens
  if (type == "Sequence") {
    for (const io::Json& item : list_of(part, "processors", where)) read_post_processor(item, where, frame);
    return;
  }
  if (type != "TemplateProcessing")
    fail_part(where, "post-processor", type, "ByteLevel, TemplateProcessing or a Sequence of them");
  const std::string place = where + ": post_processor";
  const io::Json& special = part_of(part, "special_tokens");
  SpecialFrame outer;
  bool after = false;
  for (const io::Json& item : list_of(part, "single", place)) {
    if (io::json_find(item, "Sequence")) {
      if (after) fail<FormatError>(place, ": a template with its text twice is not supported");
      after = true;
      continue;
    }
    const auto name = io::json_at<std::string>(part_of(item, "SpecialToken"), "id", place);
    const auto ids = io::json_at<std::vector<std::int32_t>>(part_of(special, name), "ids", concat(place, ": ", name));
    auto& side = after ? outer.after : outer.before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!after) fail<FormatError>(place, ": a template without its text is not supported");
  frame.before.insert(frame.before.begin(), outer.before.begin(), outer.before.end());
  frame.after.insert(frame.after.end(), outer.after.begin(), outer.after.end());
}

inline void check_decoder(const io::Json& part, const std::string& where) {
  const std::string type = type_of_part(part, where, "decoder");
  if (type == "Sequence") {
    for (const io::Json& item : list_of(part, "decoders", where)) check_decoder(item, where);
  } else if (type != "ByteLevel") {
    fail_part(where, "decoder", type, "ByteLevel");
  }
}

}  // namespace detail

/// Reads the text of a tokenizer.json; `where` names it in errors.
inline TokenizerDocument parse_tokenizer_json(std::string_view text, std::string where) {
  TokenizerDocument document;
  document.where = std::move(where);
  detail::TokenizerJsonHandler handler(text, document);
  io::send_events(text, handler);
  document.settings = handler.take();
  if (!document.settings.is_object()) fail<FormatError>(document.where, ": must be a JSON object");
  return document;
}

/// The model that a document describes.
/// Throws   FormatError for every kind of model, normaliser, pre-tokeniser or decoder that is not known
inline std::unique_ptr<ByteLevelModel> byte_level_model(TokenizerDocument&& document) {
  const std::string& where = document.where;
  const io::Json& model = detail::part_of(document.settings, "model");
  if (!model.is_object()) fail<FormatError>(where, ": \"model\" is missing");
  const std::string type = io::json_get<std::string>(model, "type", where).value_or("BPE");
  if (type != "BPE") detail::fail_part(where, "model", type, "BPE");
  const auto refuse = [&](std::string_view setting) {
    fail<FormatError>(where, ": the model's ", setting, " is not supported");
  };
  if (io::json_get<bool>(model, "byte_fallback", where).value_or(false)) refuse("byte_fallback");
  if (io::json_get<double>(model, "dropout", where).value_or(0) != 0) refuse("dropout");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!io::json_get<std::string>(model, key, where).value_or("").empty()) refuse(key);
  std::int32_t unknown = -1;
  if (const auto token = io::json_get<std::string>(model, "unk_token", where)) {
    unknown = document.vocabulary.find(*token);
    if (unknown < 0) fail<FormatError>(where, ": the unk_token \"", *token, "\" is not in the vocabulary");
    if (io::json_get<bool>(model, "fuse_unk", where).value_or(false)) refuse("fuse_unk");
  }
  if (const io::Json* vocab = io::json_find(model, "vocab"); vocab != nullptr && !vocab->is_object())
    fail<FormatError>(where, ": the model's \"vocab\" must be an object of tokens and ids");
  if (const io::Json* merges = io::json_find(model, "merges"); merges != nullptr && !merges->is_array())
    fail<FormatError>(where, ": the model's \"merges\" must be an array");
  if (document.vocabulary.count() == 0) fail<FormatError>(where, ": the vocabulary is empty");

  const bool nfc = detail::read_normalizer(detail::part_of(document.settings, "normalizer"), where);
  PreTokenizer pre_tokenizer;
  if (!detail::read_pre_tokenizer(detail::part_of(document.settings, "pre_tokenizer"), where, pre_tokenizer))
    fail<FormatError>(where, ": the pre-tokenizer is not byte-level: it must end with ByteLevel");
  detail::check_decoder(detail::part_of(document.settings, "decoder"), where);
  auto merges = document.merges.resolve(document.vocabulary, where);
  const bool ignore_merges = io::json_get<bool>(model, "ignore_merges", where).value_or(false);
  return std::make_unique<ByteLevelModel>(
      Bpe(std::move(document.vocabulary), std::move(merges), ignore_merges, unknown), std::move(pre_tokenizer), nfc);
}

/// A tokenizer.json: the settings with the model's vocabulary and merges.
inline std::string tokenizer_json_text(const io::Json& settings, const Bpe& bpe) {
  const Vocabulary& vocabulary = bpe.vocabulary();
  io::Json vocab = io::Json::object(), merges = io::Json::array();
  auto& entries = vocab.get_ref<io::Json::object_t&>();
  entries.reserve(vocabulary.count());
  for (std::int32_t id = 0; id < vocabulary.end(); ++id)
    if (vocabulary.has(id)) entries.emplace_back(vocabulary.text(id), id);
  for (const auto& merge : bpe.merges())
    merges.push_back(concat(vocabulary.text(merge.left), " ", vocabulary.text(merge.right)));
  io::Json document = settings;
  document["model"]["vocab"] = std::move(vocab);
  document["model"]["merges"] = std::move(merges);
  return io::to_text(document);
}

}  // namespace lora::tokenizer
