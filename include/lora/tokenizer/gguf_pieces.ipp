#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/tokenizer/gguf_pieces.hpp"

namespace lora::tokenizer::detail {

LORA_INLINE void fail_gguf(const TokenizerParts& parts, std::string_view what, std::string_view expected) {
  fail<FormatError>(parts.where, ": ", what, ", which a GGUF file can't say; expected ", expected);
}

LORA_INLINE bool is_run_of_marks(std::string_view text) {
  if (text.empty()) return false;
  while (text.starts_with(space_mark)) text.remove_prefix(space_mark.size());
  return text.empty();
}

LORA_INLINE bool is_made_of_spaces(const AddedToken& token) {
  return !token.special && !token.normalized && is_run_of_marks(token.content);
}

class ScoredPieces {
 public:
  explicit ScoredPieces(const TokenizerParts& parts)
      : parts_(parts),
        bpe_(parts.bpe->bpe()),
        pieces_(static_cast<std::size_t>(vocabulary().end()), {"", 0, Kind::unused}),
        is_apart_(pieces_.size()) {
    for (std::int32_t id = 0; id < vocabulary().end(); ++id) {
      if (vocabulary().has(id))
        at(id) = {vocabulary().text(id), 0, Kind::normal};
      else
        at(id).text = concat("[PAD", id, "]");
      if (at(id).text.empty()) fail_gguf(parts_, concat("the token ", id, " is empty"), "texts");
    }
    name_bytes();
    name_unknown();
    set_added_apart();
  }

  std::vector<SentencePiece> take() {
    score();
    check_splits();
    return std::move(pieces_);
  }

 private:
  using Kind = SentencePiece::Kind;

  const Vocabulary& vocabulary() const { return bpe_.vocabulary(); }
  SentencePiece& at(std::int32_t id) { return pieces_[static_cast<std::size_t>(id)]; }
  bool is_apart(std::int32_t id) const { return is_apart_[static_cast<std::size_t>(id)]; }
  bool merges(std::int32_t id) { return at(id).kind == Kind::normal && !is_apart(id); }

  void name_bytes() {
    if (!bpe_.characters().byte_tokens)
      fail_gguf(parts_, "characters without a token become no bytes", "byte_fallback true");
    for (unsigned value = 0; value < 256; ++value) {
      const std::string name = byte_token(static_cast<unsigned char>(value));
      std::int32_t id = vocabulary().find(name);
      // Files of Gemma have the tab itself where their sentencepiece model has <0x09>.
      if (id < 0 && value < 0x80) id = vocabulary().find(std::string(1, static_cast<char>(value)));
      if (id < 0) fail_gguf(parts_, concat("no token stands for the byte ", name), "tokens <0x00> to <0xFF>");
      at(id) = {name, 0, Kind::byte};
    }
  }

  void name_unknown() {
    const std::int32_t id = bpe_.unknown() >= 0 ? bpe_.unknown() : parts_.unk.value_or(-1);
    if (!vocabulary().has(id)) fail_gguf(parts_, "the vocabulary has no unk_token", "one");
    at(id).kind = Kind::unknown;
  }

  void set_added_apart() {
    for (const auto& [id, token] : parts_.added) {
      const auto declared = parts_.added_ids.find(token.content);
      if (declared == parts_.added_ids.end() || declared->second != id)
        fail_gguf(parts_,
                  concat("the added token ", id, " is found as the normalizer writes it, \"", token.content, "\""),
                  "\"normalized\" false");
      if (token.content.find(space_mark) != std::string::npos) {
        if (!is_made_of_spaces(token) || !vocabulary().has(id))
          fail_gguf(parts_, concat("the added token \"", token.content, "\" has U+2581, which stands for spaces"),
                    "a token without, or spaces alone that merges make");
      } else if (vocabulary().has(id)) {
        is_apart_[static_cast<std::size_t>(id)] = true;
      }
    }
  }

  std::string name_of(const Bpe::Merge& merge) const {
    return concat("of \"", vocabulary().text(merge.left), "\" and \"", vocabulary().text(merge.right), "\"");
  }

  /// Gives out scores, one lower than the other.
  void give_score(std::int32_t id) { at(id).score = -static_cast<float>(scored_++); }

  void check_parts(std::size_t rank) {
    const Bpe::Merge& merge = bpe_.merges()[rank];
    for (const std::int32_t id : {merge.left, merge.right, merge.whole})
      if (!merges(id))
        fail_gguf(parts_,
                  concat("merge ", rank, ", ", name_of(merge), ", has \"", vocabulary().text(id),
                         "\", which stands for what has no token"),
                  "merges of characters");
  }

  void score() {
    std::vector<bool> is_scored(pieces_.size());
    std::int32_t last = -1;
    std::size_t blocks = 0;  // of merges of runs of spaces, one behind the other
    bool run_before = false, runs_join_others = false;
    std::optional<std::size_t> first_apart;  // a merge of a run that comes behind those of other runs
    const auto fail_order = [&](std::size_t rank) {
      const Bpe::Merge& merge = bpe_.merges()[rank];
      fail_gguf(parts_, concat("merge ", rank, ", ", name_of(merge), ", comes behind merges that make other tokens"),
                concat("it beside the other merges that make \"", at(merge.whole).text, "\""));
    };
    for (std::size_t rank = 0; rank < bpe_.merges().size(); ++rank) {
      const Bpe::Merge& merge = bpe_.merges()[rank];
      const std::int32_t whole = merge.whole;
      if (is_apart(merge.left) || is_apart(merge.right) || is_apart(whole)) continue;
      check_parts(rank);
      const bool is_run = is_run_of_marks(at(whole).text);
      blocks += is_run && !run_before ? 1 : 0;
      run_before = is_run;
      for (const std::int32_t part : {merge.left, merge.right})
        runs_join_others =
            runs_join_others || (!is_run && at(part).text != space_mark && is_run_of_marks(at(part).text));
      if (whole == last) continue;
      last = whole;
      if (!is_scored[static_cast<std::size_t>(whole)])
        give_score(whole);
      else if (!is_run)
        fail_order(rank);
      else if (!first_apart)
        first_apart = rank;
      is_scored[static_cast<std::size_t>(whole)] = true;
    }
    if (first_apart && (blocks > 1 || runs_join_others)) fail_order(*first_apart);
    if (first_apart) check_runs();
    for (std::int32_t id = 0; id < vocabulary().end(); ++id)
      if (merges(id) && !is_scored[static_cast<std::size_t>(id)]) give_score(id);
  }

  void check_splits() {
    for (std::int32_t id = 0; id < vocabulary().end(); ++id) {
      if (!merges(id)) continue;
      const std::string_view text = vocabulary().bytes(id);
      for (std::size_t end = unicode::code_point_at(text, 0).bytes; end < text.size();
           end += unicode::code_point_at(text, end).bytes) {
        const std::int32_t left = vocabulary().find(text.substr(0, end)), right = vocabulary().find(text.substr(end));
        if (left < 0 || right < 0 || !merges(left) || !merges(right) || bpe_.joins(left, right)) continue;
        fail_gguf(parts_,
                  concat("no merge joins \"", text.substr(0, end), "\" and \"", text.substr(end),
                         "\", which together are a token"),
                  "one for every two such tokens, as files have that are made of a sentencepiece model");
      }
    }
  }

  /// Where nothing else merges between them and they are part of nothing else, what becomes of runs of spaces is told
  /// by texts of nothing but them.
  void check_runs() {
    std::vector<SentencePiece> runs{{"<unk>", 0, Kind::unknown}};
    std::vector<std::int32_t> ids_of_runs{-1};
    std::size_t longest = 0;
    for (std::int32_t id = 0; id < vocabulary().end(); ++id) {
      if (!merges(id) || !is_run_of_marks(at(id).text)) continue;
      runs.push_back(at(id));
      ids_of_runs.push_back(id);
      longest = std::max(longest, at(id).text.size() / space_mark.size());
    }
    const SentencePieceModel by_score(sentencepiece_proto(runs, false), parts_.where);
    Bpe::Scratch scratch;
    for (std::size_t count = 2; count <= 2 * longest; ++count) {
      std::vector<std::int32_t> by_rank, ids;
      std::vector<std::size_t> begins;
      const std::string spaces(count, ' ');
      bpe_.encode_text(with_space_marks(spaces), scratch, [&](Bpe::Symbol symbol) { by_rank.push_back(symbol.id); });
      by_score.encode(spaces, false, ids, begins);
      for (std::int32_t& id : ids) id = ids_of_runs[static_cast<std::size_t>(id)];
      if (ids != by_rank)
        fail_gguf(parts_, concat("the merges cut ", count, " spaces in a row otherwise than scores would"),
                  "merges by which longer tokens of spaces come first, or that stand side by side for each");
    }
  }

  const TokenizerParts& parts_;
  const Bpe& bpe_;
  std::vector<SentencePiece> pieces_;
  std::vector<bool> is_apart_;
  std::int32_t scored_ = 0;
};

LORA_INLINE std::vector<SentencePiece> pieces_of_merges(const TokenizerParts& parts) {
  if (parts.bpe->bpe().ignore_merges())
    fail_gguf(parts, "a word that is a token stays whole whatever merges", "ignore_merges false");
  return ScoredPieces(parts).take();
}

LORA_INLINE SentencePiecePrefix prefix_of_merges(const TokenizerParts& parts) {
  using Step = Normalizer::Step;
  const std::string mark(space_mark);
  const auto text_of = [](const std::vector<Step>& steps) {
    Normalizer normalizer;
    for (const Step& step : steps) normalizer.add(step);
    return normalizer.text();
  };
  const Step replace{.kind = Step::Kind::replace, .from = " ", .to = mark};
  const auto with = [&](Step::Kind kind) { return Step{.kind = kind, .to = mark}; };
  const struct {
    std::vector<Step> normalizer, marks;
    SentencePiecePrefix prefix;
  } forms[] = {
      {{with(Step::Kind::prepend), replace}, {}, SentencePiecePrefix::as_in_file},
      {{}, {replace, with(Step::Kind::mark)}, SentencePiecePrefix::each},
      {{}, {replace, with(Step::Kind::mark_first)}, SentencePiecePrefix::first},
      {{replace}, {}, SentencePiecePrefix::never},
      {{}, {replace}, SentencePiecePrefix::never},
  };
  const BpeSteps& steps = parts.bpe->steps();
  BpeSteps at_spaces;  // Gemma's, which finds none: its normalizer has made marks of them
  read_pre_tokenizer(io::JsonView(pre_tokenizer_of_class(TokenizerClass::gemma, {}), parts.where), at_spaces);
  const auto print = steps.pre_tokenizer.fingerprint();
  if (!steps.pre_tokenizer.empty() && print != at_spaces.pre_tokenizer.fingerprint())
    fail_gguf(parts, "the pre_tokenizer cuts texts into words", "none, or Metaspace with \"split\" false");
  for (const auto& form : forms)
    if (steps.normalizer.text() == text_of(form.normalizer) && steps.marks.text() == text_of(form.marks))
      return form.prefix;
  fail_gguf(parts,
            concat("the normalizer (", steps.normalizer.text(), ") and the pre_tokenizer (", steps.marks.text(),
                   ") rewrite texts"),
            "marks for spaces, by a normalizer or by Metaspace");
}

}  // namespace lora::tokenizer::detail
