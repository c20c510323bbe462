#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::tokenizer {

/// The printable code points that byte-level vocabularies use for bytes: printable Latin-1 is itself, the rest starts
/// at U+0100.
class ByteAlphabet {
 public:
  static const ByteAlphabet& instance() {
    static const ByteAlphabet alphabet;
    return alphabet;
  }

  /// The bytes of a token; nothing if it has a code point that stands for no byte.
  std::optional<std::string> to_bytes(std::string_view token) const {
    std::string bytes;
    for (std::size_t at = 0; at < token.size();) {
      const auto c = unicode::code_point_at(token, at);
      at += c.bytes;
      const int byte = c.value < bytes_.size() ? bytes_[c.value] : -1;
      if (byte < 0) return std::nullopt;
      bytes += static_cast<char>(static_cast<unsigned char>(byte));
    }
    return bytes;
  }

  std::string to_token(std::string_view bytes) const {
    std::string token;
    for (const char byte : bytes) unicode::append_utf8(token, points_[static_cast<unsigned char>(byte)]);
    return token;
  }

 private:
  ByteAlphabet() {
    bytes_.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      const char32_t point = printable ? byte : next++;
      points_[byte] = point;
      bytes_[point] = static_cast<std::int16_t>(byte);
    }
  }

  std::array<char32_t, 256> points_{};
  std::array<std::int16_t, 0x144> bytes_{};
};

/// Maps ids to tokens and tokens to ids. A token is kept as its bytes; one that isn't in the byte alphabet (it has a
/// space, say) is literal: kept as written, and never matched in a text.
class Vocabulary {
 public:
  static constexpr std::int32_t max_id = 1 << 20;

  /// `token` as in the file, valid UTF-8.
  void add(std::string_view token, std::int64_t id, const std::string& where) {
    if (id < 0 || id >= max_id)
      fail<FormatError>(where, ": token \"", token, "\" has the id ", id, "; expected 0 to ", max_id - 1);
    const auto index = static_cast<std::size_t>(id);
    if (index >= spans_.size()) spans_.resize(index + 1);
    if (spans_[index].length != hole)
      fail<FormatError>(where, ": tokens \"", text(static_cast<std::int32_t>(id)), "\" and \"", token,
                        "\" both have the id ", id);
    const auto bytes = ByteAlphabet::instance().to_bytes(token);
    if (arena_.size() + token.size() > std::numeric_limits<std::uint32_t>::max())
      fail<FormatError>(where, ": the vocabulary is larger than 4 GiB");
    spans_[index] = {static_cast<std::uint32_t>(arena_.size()),
                     static_cast<std::uint32_t>(bytes ? bytes->size() : token.size()), !bytes};
    arena_ += bytes ? std::string_view(*bytes) : token;
    ++count_;
    const auto number = static_cast<std::int32_t>(id);
    const auto duplicate = bytes ? insert(number) : literals_.emplace(token, number).first->second;
    if (duplicate != number) fail<FormatError>(where, ": token \"", token, "\" has two ids, ", duplicate, " and ", id);
  }

  /// One more than the highest id.
  std::int32_t end() const { return static_cast<std::int32_t>(spans_.size()); }
  std::size_t count() const { return count_; }
  bool has(std::int32_t id) const {
    return id >= 0 && id < end() && spans_[static_cast<std::size_t>(id)].length != hole;
  }
  bool is_literal(std::int32_t id) const { return spans_[static_cast<std::size_t>(id)].literal; }

  /// What the token decodes to.
  std::string_view bytes(std::int32_t id) const {
    const Span span = spans_[static_cast<std::size_t>(id)];
    return std::string_view(arena_).substr(span.begin, span.length);
  }

  /// The token as in the file.
  std::string text(std::int32_t id) const {
    return is_literal(id) ? std::string(bytes(id)) : ByteAlphabet::instance().to_token(bytes(id));
  }

  /// The id of the token with these bytes, or -1.
  std::int32_t find_bytes(std::string_view bytes) const {
    if (slots_.empty()) return -1;
    const std::uint32_t tag = hash(bytes);
    for (std::size_t slot = tag & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1)) {
      const Slot& here = slots_[slot];
      if (here.id < 0) return -1;
      if (here.tag == tag && this->bytes(here.id) == bytes) return here.id;
    }
  }

  /// The id of a token as in the file, or -1.
  std::int32_t find(std::string_view token) const {
    if (const auto bytes = ByteAlphabet::instance().to_bytes(token)) return find_bytes(*bytes);
    const auto found = literals_.find(std::string(token));
    return found == literals_.end() ? -1 : found->second;
  }

 private:
  static constexpr std::uint32_t hole = std::numeric_limits<std::uint32_t>::max();

  struct Span {
    std::uint32_t begin = 0;
    std::uint32_t length = hole;
    bool literal = false;
  };
  struct Slot {
    std::uint32_t tag = 0;
    std::int32_t id = -1;
  };

  static std::uint32_t hash(std::string_view bytes) {
    std::uint64_t state = bytes.size() * 0x9E3779B97F4A7C15u;
    const char* at = bytes.data();
    std::size_t left = bytes.size();
    while (left > 0) {
      const std::size_t take = std::min<std::size_t>(left, 8);
      std::uint64_t word = 0;
      if (take == 8)
        std::memcpy(&word, at, 8);
      else
        std::memcpy(&word, at, take);
      state = (state ^ word) * 0xBF58476D1CE4E5B9u;
      state ^= state >> 29;
      at += take;
      left -= take;
    }
    return static_cast<std::uint32_t>((state * 0x94D049BB133111EBu) >> 32);
  }

  /// The existing id of these bytes, or the given one after inserting it.
  std::int32_t insert(std::int32_t id) {
    if (slots_.size() < 2 * (filled_ + 1)) {
      std::vector<Slot> old(std::max<std::size_t>(1024, slots_.size() * 4));
      old.swap(slots_);
      for (const Slot& slot : old)
        if (slot.id >= 0) slots_[free_slot(slot.tag)] = slot;
    }
    const std::string_view name = bytes(id);
    if (const std::int32_t duplicate = find_bytes(name); duplicate >= 0) return duplicate;
    const std::uint32_t tag = hash(name);
    slots_[free_slot(tag)] = {tag, id};
    ++filled_;
    return id;
  }
  std::size_t free_slot(std::uint32_t tag) const {
    std::size_t slot = tag & (slots_.size() - 1);
    while (slots_[slot].id >= 0) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  std::string arena_;
  std::vector<Span> spans_;
  std::vector<Slot> slots_;
  std::size_t filled_ = 0, count_ = 0;
  std::unordered_map<std::string, std::int32_t> literals_;
};

/// Byte-pair encoding: merges the bytes of a word pair by pair, lowest rank first, leftmost first among equals.
/// Source   Sennrich et al. 2016, Radford et al. 2019
class Bpe {
 public:
  struct Merge {
    std::int32_t left, right, whole;
  };

  /// A token and where in the word it begins.
  struct Symbol {
    std::int32_t id;
    std::uint32_t begin;
  };

  /// Buffers for one word, for use by one thread at a time.
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<std::uint32_t> ranks;
    std::vector<std::int32_t> wholes;
    std::vector<std::uint32_t> next, previous;
  };

  /// `merges` by rank. With `ignore_merges` a word that is a token stays whole, whatever the merges give. `unknown` is
  /// used for bytes without a token; if it is -1 they are left out, like in the `tokenizers` library.
  Bpe(Vocabulary vocabulary, std::vector<Merge> merges, bool ignore_merges, std::int32_t unknown = -1)
      : vocabulary_(std::move(vocabulary)),
        merges_(std::move(merges)),
        ignore_merges_(ignore_merges),
        unknown_(unknown) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char name = static_cast<char>(static_cast<unsigned char>(byte));
      const std::int32_t id = vocabulary_.find_bytes(std::string_view(&name, 1));
      byte_ids_[byte] = id >= 0 ? id : unknown;
    }
    slots_.resize(std::bit_ceil(std::max<std::size_t>(16, merges_.size() + merges_.size() / 2)));
    shift_ = 64 - static_cast<int>(std::bit_width(slots_.size() - 1));
    for (std::size_t rank = 0; rank < merges_.size(); ++rank) {
      const Merge& merge = merges_[rank];
      const std::uint64_t key = pair_key(merge.left, merge.right);
      Slot& slot = slots_[slot_of(key)];
      slot = {key, static_cast<std::uint32_t>(rank), merge.whole};  // of a pair listed twice, the last one counts
    }
    whole_ = std::make_unique<std::atomic<std::uint8_t>[]>(static_cast<std::size_t>(vocabulary_.end()));
  }

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const std::vector<Merge>& merges() const { return merges_; }
  bool ignore_merges() const { return ignore_merges_; }
  std::int32_t unknown() const { return unknown_; }

  /// Calls `take(Symbol)` for each token of a word.
  template <class Take>
  void encode(std::string_view word, Scratch& scratch, Take&& take) const {
    if (word.size() == 1 && !ignore_merges_) {
      const std::int32_t id = byte_ids_[static_cast<unsigned char>(word[0])];
      if (id >= 0) take(Symbol{id, 0});
      return;
    }
    // Most words are tokens that their bytes merge to. Whether one is, is computed once and cached: all threads compute
    // the same answer.
    const std::int32_t id = vocabulary_.find_bytes(word);
    if (id >= 0) {
      auto& known = whole_[static_cast<std::size_t>(id)];
      if (ignore_merges_ || known.load(std::memory_order_relaxed) == stays_whole) return take(Symbol{id, 0});
      merge(word, scratch);
      if (scratch.symbols.size() == 1 && scratch.symbols[0].id == id)
        known.store(stays_whole, std::memory_order_relaxed);
    } else {
      merge(word, scratch);
    }
    for (const Symbol& symbol : scratch.symbols) take(symbol);
  }

 private:
  static constexpr std::uint8_t stays_whole = 1;
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint64_t empty = std::numeric_limits<std::uint64_t>::max();
  /// Up to this many symbols, scanning for the lowest rank is faster than a heap.
  static constexpr std::size_t scan_limit = 128;

  struct Slot {
    std::uint64_t key = empty;
    std::uint32_t rank = never;
    std::int32_t whole = -1;
  };

  static std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    std::size_t slot = (key * 0x9E3779B97F4A7C15u) >> shift_;
    while (slots_[slot].key != key && slots_[slot].key != empty) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }
  const Slot& look_up(std::int32_t left, std::int32_t right) const { return slots_[slot_of(pair_key(left, right))]; }

  void merge(std::string_view word, Scratch& s) const {
    s.symbols.clear();
    for (std::size_t i = 0; i < word.size(); ++i) {
      const std::int32_t id = byte_ids_[static_cast<unsigned char>(word[i])];
      if (id >= 0) s.symbols.push_back({id, static_cast<std::uint32_t>(i)});
    }
    const std::size_t count = s.symbols.size();
    if (count < 2) return;
    s.ranks.resize(count);
    s.wholes.resize(count);
    for (std::size_t i = 0; i + 1 < count; ++i) rank_pair(s, i, i + 1);
    s.ranks[count - 1] = never;
    if (count <= scan_limit) {
      merge_by_scan(s);
    } else {
      merge_by_heap(s);
    }
  }

  void rank_pair(Scratch& s, std::size_t left, std::size_t right) const {
    const Slot& slot = look_up(s.symbols[left].id, s.symbols[right].id);
    s.ranks[left] = slot.rank;
    s.wholes[left] = slot.whole;
  }

  void merge_by_scan(Scratch& s) const {
    std::size_t count = s.symbols.size();
    for (;;) {
      std::uint32_t lowest = never;
      for (std::size_t i = 0; i < count; ++i) lowest = std::min(lowest, s.ranks[i]);
      if (lowest == never) break;
      std::size_t at = 0;
      while (s.ranks[at] != lowest) ++at;
      s.symbols[at].id = s.wholes[at];
      const auto after = static_cast<std::ptrdiff_t>(at + 1), end = static_cast<std::ptrdiff_t>(count);
      const auto close_gap = [&](auto& items) {
        std::copy(items.begin() + after + 1, items.begin() + end, items.begin() + after);
      };
      close_gap(s.symbols);
      close_gap(s.ranks);
      close_gap(s.wholes);
      --count;
      s.ranks[at] = never;
      if (at + 1 < count) rank_pair(s, at, at + 1);
      if (at > 0) rank_pair(s, at - 1, at);
    }
    s.symbols.resize(count);
  }

  /// The symbols stay in place and are linked; a pair whose rank has changed since it was queued is stale.
  void merge_by_heap(Scratch& s) const {
    const auto count = static_cast<std::uint32_t>(s.symbols.size());
    s.next.resize(count);
    s.previous.resize(count);
    using Entry = std::pair<std::uint32_t, std::uint32_t>;  // rank, place
    std::vector<Entry> entries;
    entries.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      s.next[i] = i + 1;
      s.previous[i] = i - 1;
      if (s.ranks[i] != never) entries.emplace_back(s.ranks[i], i);
    }
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue(std::greater<>(), std::move(entries));
    while (!queue.empty()) {
      const auto [rank, at] = queue.top();
      queue.pop();
      if (s.ranks[at] != rank) continue;
      const std::uint32_t gone = s.next[at];
      s.symbols[at].id = s.wholes[at];
      s.symbols[gone].id = -1;
      s.ranks[gone] = s.ranks[at] = never;
      s.next[at] = s.next[gone];
      if (s.next[at] < count) {
        s.previous[s.next[at]] = at;
        rank_pair(s, at, s.next[at]);
        if (s.ranks[at] != never) queue.emplace(s.ranks[at], at);
      }
      if (at > 0) {
        const std::uint32_t before = s.previous[at];
        rank_pair(s, before, at);
        if (s.ranks[before] != never) queue.emplace(s.ranks[before], before);
      }
    }
    std::erase_if(s.symbols, [](const Symbol& symbol) { return symbol.id < 0; });
  }

  Vocabulary vocabulary_;
  std::vector<Merge> merges_;
  bool ignore_merges_;
  std::int32_t unknown_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<Slot> slots_;
  int shift_ = 0;
  std::unique_ptr<std::atomic<std::uint8_t>[]> whole_;
};

}  // namespace lora::tokenizer
