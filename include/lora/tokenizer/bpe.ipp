#pragma once

#include <functional>

#include "lora/core/config.hpp"
#include "lora/tokenizer/bpe.hpp"

namespace lora::tokenizer {

LORA_INLINE const ByteAlphabet& ByteAlphabet::instance() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

LORA_INLINE std::optional<std::string> ByteAlphabet::to_bytes(std::string_view token) const {
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

LORA_INLINE std::string ByteAlphabet::to_token(std::string_view bytes) const {
  std::string token;
  for (const char byte : bytes) unicode::append_utf8(token, points_[static_cast<unsigned char>(byte)]);
  return token;
}

LORA_INLINE ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    const char32_t point = printable ? byte : next++;
    points_[byte] = point;
    bytes_[point] = static_cast<std::int16_t>(byte);
  }
}

LORA_INLINE Vocabulary Vocabulary::as_text(const std::string& where) const {
  Vocabulary made(Writing::text);
  for (std::int32_t id = 0; id < end(); ++id)
    if (has(id)) made.add(text(id), id, where);
  return made;
}

LORA_INLINE void Vocabulary::add(std::string_view token, std::int64_t id, const std::string& where) {
  if (id < 0 || id >= max_id)
    fail<FormatError>(where, ": token \"", token, "\" has the id ", id, "; expected 0 to ", max_id - 1);
  const auto index = static_cast<std::size_t>(id);
  if (index >= spans_.size()) spans_.resize(index + 1);
  if (spans_[index].length != hole)
    fail<FormatError>(where, ": tokens \"", text(static_cast<std::int32_t>(id)), "\" and \"", token,
                      "\" both have the id ", id);
  const auto bytes = is_text() ? std::string(token) : ByteAlphabet::instance().to_bytes(token);
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

LORA_INLINE bool Vocabulary::has(std::int32_t id) const {
  return id >= 0 && id < end() && spans_[static_cast<std::size_t>(id)].length != hole;
}

LORA_INLINE std::string_view Vocabulary::bytes(std::int32_t id) const {
  const Span span = spans_[static_cast<std::size_t>(id)];
  return std::string_view(arena_).substr(span.begin, span.length);
}

LORA_INLINE std::string Vocabulary::text(std::int32_t id) const {
  return is_text() || is_literal(id) ? std::string(bytes(id)) : ByteAlphabet::instance().to_token(bytes(id));
}

LORA_INLINE std::int32_t Vocabulary::find_bytes(std::string_view bytes) const {
  if (slots_.empty()) return -1;
  const std::uint32_t tag = hash(bytes);
  for (std::size_t slot = tag & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1)) {
    const Slot& here = slots_[slot];
    if (here.id < 0) return -1;
    if (here.tag == tag && this->bytes(here.id) == bytes) return here.id;
  }
}

LORA_INLINE std::int32_t Vocabulary::find(std::string_view token) const {
  if (is_text()) return find_bytes(token);
  if (const auto bytes = ByteAlphabet::instance().to_bytes(token)) return find_bytes(*bytes);
  const auto found = literals_.find(std::string(token));
  return found == literals_.end() ? -1 : found->second;
}

LORA_INLINE std::uint32_t Vocabulary::hash(std::string_view bytes) {
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

LORA_INLINE std::int32_t Vocabulary::insert(std::int32_t id) {
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

LORA_INLINE std::size_t Vocabulary::free_slot(std::uint32_t tag) const {
  std::size_t slot = tag & (slots_.size() - 1);
  while (slots_[slot].id >= 0) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

LORA_INLINE std::string byte_token(unsigned char byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return concat("<0x", digits.substr(byte / 16, 1), digits.substr(byte % 16, 1), ">");
}

LORA_INLINE Bpe::Bpe(Vocabulary vocabulary, std::vector<Merge> merges, bool ignore_merges, std::int32_t unknown,
                     CharacterRules characters)
    : vocabulary_(std::move(vocabulary)),
      merges_(std::move(merges)),
      ignore_merges_(ignore_merges),
      unknown_(unknown),
      characters_(characters) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char name = static_cast<char>(static_cast<unsigned char>(byte));
    const std::int32_t id = vocabulary_.is_text() ? vocabulary_.find_bytes(byte_token(static_cast<unsigned char>(byte)))
                                                  : vocabulary_.find_bytes(std::string_view(&name, 1));
    byte_ids_[byte] = id >= 0 || vocabulary_.is_text() ? id : unknown;
  }
  words_are_apart_ = vocabulary_.is_text() && merges_stay_in_words();
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

LORA_INLINE std::uint64_t Bpe::pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

LORA_INLINE std::size_t Bpe::slot_of(std::uint64_t key) const {
  std::size_t slot = (key * 0x9E3779B97F4A7C15u) >> shift_;
  while (slots_[slot].key != key && slots_[slot].key != empty) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

LORA_INLINE bool Bpe::merges_stay_in_words() const {
  // A text that is a token stays whole then, even one of several words.
  if (ignore_merges_) return false;
  // What is unknown would join what is so in the next word if no mark were between them, marks what it leaves out
  // between them, and its own token, if it were of marks, would merge as they do.
  if (vocabulary_.find_bytes(space_mark) < 0) return false;
  if (unknown_ >= 0) {
    const std::string_view unknown = vocabulary_.bytes(unknown_);
    if (unknown.empty() || unknown.find(space_mark) != unknown.npos) return false;
  } else if (!characters_.byte_tokens || std::find(byte_ids_.begin(), byte_ids_.end(), -1) != byte_ids_.end()) {
    return false;
  }
  return std::all_of(merges_.begin(), merges_.end(), [&](const Merge& merge) {
    const std::string_view whole = vocabulary_.bytes(merge.whole);
    return end_of_marked_word(whole, 0) == whole.size();
  });
}

LORA_INLINE std::size_t Bpe::end_of_marked_word(std::string_view text, std::size_t begin) {
  while (text.substr(begin).starts_with(space_mark)) begin += space_mark.size();
  return std::min(text.find(space_mark, begin), text.size());
}

LORA_INLINE void Bpe::start_with_bytes(std::string_view word, Scratch& s) const {
  for (std::size_t i = 0; i < word.size(); ++i) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(word[i])];
    if (id >= 0) s.symbols.push_back({id, static_cast<std::uint32_t>(i)});
  }
}

LORA_INLINE void Bpe::start_with_characters(std::string_view word, Scratch& s) const {
  std::size_t at = 0, waiting = 0;  // bytes of what is unknown and has no symbol yet
  const auto add = [&](std::int32_t id, std::size_t place) {
    s.symbols.push_back({id, static_cast<std::uint32_t>(place)});
  };
  const auto add_unknown = [&] {
    if (waiting > 0) add(unknown_, at - waiting);
    waiting = 0;
  };
  const auto add_bytes = [&](std::string_view character) {
    if (!characters_.byte_tokens) return false;
    const auto id_of = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
    for (const char byte : character)
      if (id_of(byte) < 0) return false;
    // In the `tokenizers` library what waits goes on waiting, and so comes behind these bytes.
    for (std::size_t i = 0; i < character.size(); ++i) add(id_of(character[i]), at - waiting + i);
    return true;
  };
  while (at < word.size()) {
    const std::string_view character = word.substr(at, unicode::code_point_at(word, at).bytes);
    const std::int32_t id = vocabulary_.find_bytes(character);
    if (id >= 0) {
      add_unknown();
      add(id, at);
    } else if (!add_bytes(character) && unknown_ >= 0) {
      if (!characters_.fuse_unknown) add_unknown();
      waiting += character.size();
    }
    at += character.size();
  }
  add_unknown();
}

LORA_INLINE void Bpe::merge(std::string_view word, Scratch& s) const {
  s.symbols.clear();
  if (vocabulary_.is_text())
    start_with_characters(word, s);
  else
    start_with_bytes(word, s);
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

LORA_INLINE void Bpe::rank_pair(Scratch& s, std::size_t left, std::size_t right) const {
  const Slot& slot = look_up(s.symbols[left].id, s.symbols[right].id);
  s.ranks[left] = slot.rank;
  s.wholes[left] = slot.whole;
}

LORA_INLINE void Bpe::merge_by_scan(Scratch& s) const {
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

LORA_INLINE void Bpe::merge_by_heap(Scratch& s) const {
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

}  // namespace lora::tokenizer
