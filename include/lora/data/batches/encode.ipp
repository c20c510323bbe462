#pragma once

#include <cstddef>

#include "lora/core/config.hpp"
#include "lora/data/batches/encode.hpp"

namespace lora::data {

/// Throws   FormatError for a marker that the tokenizer cuts into pieces: a model would learn these in its place
LORA_INLINE void expect_marker(const tokenizer::Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               std::string_view marker) {
  const auto pieces = tokenizer.encode(marker).ids.size();
  if (pieces == 1) return;
  fail<FormatError>(tokenizer.where(), ": the template ", chat_template.name(), " writes ", marker,
                    ", which the tokenizer cuts into ", pieces, " tokens; expected one: declare it in the \"",
                    "added_tokens\" of tokenizer.json or the \"additional_special_tokens\" of tokenizer_config.json, ",
                    "or set template to another");
}

LORA_INLINE void expect_markers(const tokenizer::Tokenizer& tokenizer, const ChatTemplate& chat_template) {
  for (const std::string_view marker : chat_template.markers()) expect_marker(tokenizer, chat_template, marker);
}

LORA_INLINE void expect_markers(const tokenizer::Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                const Sample& sample, std::string_view rendering) {
  const auto check = [&](std::span<const std::string_view> markers) {
    for (const std::string_view marker : markers)
      if (rendering.find(marker) != rendering.npos) expect_marker(tokenizer, chat_template, marker);
  };
  check(chat_template.markers_of_thoughts());
  if (!sample.tools.empty() || std::any_of(sample.messages.begin(), sample.messages.end(), [](const Message& turn) {
        return turn.role == "tool" || !turn.tool_calls.empty();
      }))
    check(chat_template.markers_of_tools());
}

LORA_INLINE std::string end_of_text(const tokenizer::Tokenizer& tokenizer) {
  const auto eos = tokenizer.eos();
  return eos ? tokenizer.decode(std::vector<std::int32_t>{*eos}) : "";
}

LORA_INLINE SpecialTexts special_texts(const tokenizer::Tokenizer& tokenizer) {
  const auto text = [&](std::optional<std::int32_t> id) {
    return id ? tokenizer.decode(std::vector<std::int32_t>{*id}) : std::string();
  };
  return {text(tokenizer.bos()), text(tokenizer.eos()), text(tokenizer.pad()), tokenizer.special_tokens()};
}

LORA_INLINE std::optional<ChatTemplate> find_template(std::string_view text, const tokenizer::Tokenizer& tokenizer,
                                                      std::string* why) {
  if (auto known = ChatTemplate::find(text, end_of_text(tokenizer))) return known;
  try {
    if (strip(text).empty()) fail<FormatError>("the model has no chat template");
    return ChatTemplate::interpreted(text, special_texts(tokenizer));
  } catch (const FormatError& error) {
    if (why != nullptr) *why = error.what();
    return std::nullopt;
  }
}

LORA_INLINE ChatTemplate choose_template(std::string_view name, const tokenizer::Tokenizer& tokenizer) {
  auto chosen = [&] {
    if (name == "auto") {
      std::string why;
      if (auto own = find_template(tokenizer.chat_template(), tokenizer, &why)) return *std::move(own);
      fail<ConfigError>(tokenizer.where(), ": ", std::string_view(why), "; set template to one of ",
                        ChatTemplate::choices(), ", or put another text into its folder as chat_template.jinja");
    }
    const auto own = ChatTemplate::find(tokenizer.chat_template(), end_of_text(tokenizer));
    if (own && name == own->name()) return *own;
    return ChatTemplate::named(name, end_of_text(tokenizer), tokenizer.decode(tokenizer.opening()));
  }();
  expect_markers(tokenizer, chosen);
  if (name == "auto" && tokenizer.has_tool_template()) chosen.leave_tools_to_another();
  return chosen;
}

LORA_INLINE tokenizer::Tokenizer::Encoding encode_rendering(const tokenizer::Tokenizer& tokenizer,
                                                            const ChatTemplate& chat_template, std::string_view text) {
  auto encoding = tokenizer.encode(text);
  if (!chat_template.needs_opening()) return encoding;
  const auto& opening = tokenizer.opening();
  encoding.ids.insert(encoding.ids.begin(), opening.begin(), opening.end());
  encoding.begins.insert(encoding.begins.begin(), opening.size(), 0);
  return encoding;
}

LORA_INLINE void truncate(Example& example, Index most) {
  if (std::ssize(example.tokens) <= most) return;
  const bool had_labels = example.labeled() > 0;
  example.tokens.resize(static_cast<std::size_t>(most));
  example.labels.resize(static_cast<std::size_t>(most));
  example.truncated = true;
  example.lost = had_labels && example.labeled() == 0;
}

LORA_INLINE Encoder::Encoder(const tokenizer::Tokenizer* tokenizer, std::optional<ChatTemplate> chat_template,
                             EncodeOptions options)
    : tokenizer_(tokenizer), template_(std::move(chat_template)), options_(std::move(options)) {
  if (options_.cutoff_len < 1) fail<ConfigError>("cutoff_len is ", options_.cutoff_len, "; expected at least 1");
}

LORA_INLINE Example Encoder::operator()(const Sample& sample) const {
  Example example;
  switch (sample.kind) {
    case Sample::Kind::tokens:
      example.tokens = sample.tokens;
      example.labels = sample.labels;
      break;
    case Sample::Kind::text:
      example.tokens = text_tokens(sample, true);
      example.labels = example.tokens;
      break;
    case Sample::Kind::messages:
      encode_messages(sample, example);
      break;
  }
  if (!sample.learned || sample.unanswered) example.labels.assign(example.tokens.size(), ignore_index);
  example.unanswered = sample.unanswered;
  truncate(example, options_.cutoff_len);
  check_ids(example.tokens, sample);
  check_labels(example.labels, sample);
  example.record = sample.record;
  return example;
}

LORA_INLINE std::vector<std::int32_t> Encoder::whole_text(const Sample& sample) const {
  auto ids = text_tokens(sample, true);
  check_ids(ids, sample);
  return ids;
}

LORA_INLINE bool Encoder::may_pass_vocabulary() const {
  return tokenizer_ != nullptr && options_.vocab_size > 0 && tokenizer_->vocab_size() > options_.vocab_size;
}

LORA_INLINE std::size_t Encoder::check(const Sample& sample) const {
  if (sample.kind == Sample::Kind::tokens) {
    const std::size_t kept = std::min(sample.tokens.size(), static_cast<std::size_t>(options_.cutoff_len));
    check_ids(std::span(sample.tokens).first(kept), sample);
    check_labels(std::span(sample.labels).first(kept), sample);
    return sample.tokens.size();
  }
  static_cast<void>(tokenizer(sample));
  expect_marks_hold(sample);
  return sample.kind == Sample::Kind::text ? sample.text.size()
                                           : render(sample, sample.messages, options_.render).text.size();
}

LORA_INLINE std::vector<std::int32_t> Encoder::prompt(const Sample& sample) const {
  std::vector<std::int32_t> ids;
  if (sample.kind == Sample::Kind::tokens) {
    ids = sample.tokens;
  } else if (sample.kind == Sample::Kind::text) {
    ids = text_tokens(sample, false);
  } else {
    RenderOptions options = options_.render;
    options.add_generation_prompt = true;
    const Rendering rendering = render(sample, sample.question(), options);
    ids = encode_rendering(tokenizer(sample), *template_, rendering.text).ids;
  }
  check_ids(ids, sample);
  return ids;
}

LORA_INLINE Index Encoder::most_tokens(std::size_t bytes) const {
  if (!tokenizer_) return 0;  // texts are errors
  const std::size_t added = tokenizer_->opening().size() + tokenizer_->closing().size() + 1;
  return static_cast<Index>((bytes + 1) * tokenizer_->growth() + added);  // with a space that some put in front
}

LORA_INLINE const tokenizer::Tokenizer& Encoder::tokenizer(const Sample& sample) const {
  if (!tokenizer_) fail<ConfigError>(sample.where, ": only token records can be used without a tokenizer");
  return *tokenizer_;
}

LORA_INLINE std::vector<std::int32_t> Encoder::text_tokens(const Sample& sample, bool whole) const {
  const tokenizer::Tokenizer& tokens = tokenizer(sample);
  std::vector<std::int32_t> ids = tokens.opening();
  const auto text = tokens.encode(sample.text).ids;
  ids.insert(ids.end(), text.begin(), text.end());
  if (!whole) return ids;
  ids.insert(ids.end(), tokens.closing().begin(), tokens.closing().end());
  const auto eos = tokens.eos();
  if (eos && (tokens.closing().empty() || tokens.closing().back() != *eos)) ids.push_back(*eos);
  return ids;
}

LORA_INLINE Rendering Encoder::render(const Sample& sample, std::span<const Message> messages,
                                      const RenderOptions& options) const {
  if (!template_)
    fail<ConfigError>(sample.where, ": conversations need a chat template; set template to one of ",
                      ChatTemplate::choices());
  try {
    RenderOptions own = options;
    own.tools = sample.tools;
    Rendering rendering = template_->render(template_->turns_of(messages, own), own);
    expect_markers(tokenizer(sample), *template_, sample, rendering.text);
    return rendering;
  } catch (const FormatError& error) {
    fail<FormatError>(sample.where, ": ", std::string_view(error.what()));
  }
}

LORA_INLINE void Encoder::encode_messages(const Sample& sample, Example& example) const {
  expect_marks_hold(sample);
  const Rendering rendering = render(sample, sample.messages, options_.render);
  auto encoding = encode_rendering(tokenizer(sample), *template_, rendering.text);
  const std::size_t opening = template_->needs_opening() ? tokenizer(sample).opening().size() : 0;
  std::span<const AnswerSpan> answers = rendering.answers;
  std::vector<bool> learned;  // of the answers
  for (const Message& message : sample.messages)
    if (message.role == "assistant") learned.push_back(message.learned);
  const bool last_only = options_.train_on_last_turn_only;
  for (std::size_t i = 0; last_only && i + 1 < learned.size(); ++i) learned[i] = false;
  // Nothing after the last labeled answer has a loss.
  std::size_t used = answers.size();
  while (used > 0 && !learned[used - 1] && !options_.train_on_prompt) --used;
  const std::size_t end = used == 0 ? rendering.text.size() : answers[used - 1].end;
  const auto past = std::lower_bound(encoding.begins.begin(), encoding.begins.end(), end);
  const auto count = static_cast<std::size_t>(past - encoding.begins.begin());
  example.tokens = std::move(encoding.ids);
  example.tokens.resize(count);
  example.labels.assign(count, ignore_index);
  std::size_t answer = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = encoding.begins[i];
    while (answer < answers.size() && begin >= answers[answer].end) ++answer;
    const bool inside = i >= opening && answer < answers.size() && begin >= answers[answer].begin;
    if (inside ? learned[answer] : options_.train_on_prompt) example.labels[i] = example.tokens[i];
  }
}

LORA_INLINE void Encoder::expect_marks_hold(const Sample& sample) const {
  if (!options_.train_on_prompt) return;
  for (const Message& message : sample.messages)
    if (!message.learned && message.role != "assistant")
      fail<FormatError>(sample.where, ": a turn of the ", message.role,
                        " is marked as not learned, but train_on_prompt learns all of them");
}

LORA_INLINE void Encoder::check_ids(std::span<const std::int32_t> ids, const Sample& sample) const {
  for (const std::int32_t id : ids) check_id(id, sample);
}

LORA_INLINE void Encoder::check_labels(std::span<const std::int32_t> labels, const Sample& sample) const {
  for (const std::int32_t label : labels)
    if (label != ignore_index) check_id(label, sample);
}

LORA_INLINE void Encoder::check_id(std::int32_t id, const Sample& sample) const {
  if (id < 0 || (options_.vocab_size > 0 && id >= options_.vocab_size))
    fail<FormatError>(sample.where, ": the token id ", id, "; the model's vocabulary has ", options_.vocab_size,
                      sample.kind == Sample::Kind::tokens ? ""
                                                          : concat(" and so no embedding for the tokenizer's token \"",
                                                                   tokenizer_->decode(std::span(&id, 1)), "\""));
}

LORA_INLINE void EncodeSummary::add(const Example& example) {
  ++records_;
  lengths_.push_back(static_cast<Index>(example.tokens.size()));
  reaches(lengths_.back(), example.record);
  tokens_ += lengths_.back();
  labeled_ += example.labeled();
  truncated_ += example.truncated;
  left_out_ += example.labeled() == 0 && !example.unanswered;
  lost_ += example.lost;
  unanswered_ += example.unanswered;
}

LORA_INLINE void EncodeSummary::pass_over(bool unanswered) {
  ++records_;
  unanswered_ += unanswered;
}

LORA_INLINE void EncodeSummary::reaches(Index length, Index record) {
  if (length <= longest_) return;
  longest_ = length;
  longest_record_ = record;
}

LORA_INLINE Index EncodeSummary::length_at(double share) const {
  if (share >= 1 || lengths_.empty()) return longest_;
  std::vector<Index> sorted = lengths_;
  const auto last = sorted.size() - 1;
  const auto rank = std::min(last, static_cast<std::size_t>(std::ceil(share * static_cast<double>(last))));
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(rank), sorted.end());
  return sorted[rank];
}

LORA_INLINE std::string EncodeSummary::text() const {
  const double share = tokens_ == 0 ? 0 : 100.0 * static_cast<double>(labeled_) / static_cast<double>(tokens_);
  return concat(records(), cut_from_ > 0 ? concat(" blocks of ", cut_from_) : "", " records, ",
                complete() ? "" : concat("judged by ", encoded(), " of them: about "), tokens(), " tokens, ",
                std::round(share * 10) / 10, " % labeled, ", truncated(), " truncated, ", left_out(), " left out",
                unanswered_ > 0 ? concat(", ", unanswered_, " without an answer") : "", "; lengths ", length_at(0),
                " to ", length_at(1), ", median ", length_at(0.5), ", 95 % up to ", length_at(0.95));
}

LORA_INLINE Index EncodeSummary::scaled(Index sum) const {
  if (complete() || encoded() == 0) return sum;
  return static_cast<Index>(
      std::llround(static_cast<double>(sum) * static_cast<double>(records_) / static_cast<double>(encoded())));
}

LORA_INLINE std::string preview(const Example& example, const tokenizer::Tokenizer* tokenizer) {
  std::string text;
  const auto is_labeled = [&](std::size_t i) { return example.labels[i] != ignore_index; };
  for (std::size_t begin = 0; begin < example.tokens.size();) {
    std::size_t end = begin + 1;
    while (end < example.tokens.size() && is_labeled(end) == is_labeled(begin)) ++end;
    const std::span<const std::int32_t> run(example.tokens.data() + begin, end - begin);
    std::string part;
    if (tokenizer) {
      part = tokenizer->decode(run);
    } else {
      for (const std::int32_t id : run) part += (part.empty() ? "" : " ") + std::to_string(id);
    }
    if (!tokenizer && begin > 0) text += ' ';
    text += is_labeled(begin) ? "⟦" + part + "⟧" : part;
    begin = end;
  }
  return text;
}

}  // namespace lora::data
