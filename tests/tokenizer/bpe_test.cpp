#include "lora/tokenizer/bpe.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "support/message_of.hpp"

namespace bpe_test {

using namespace lora;
using test::holds;
using test::message_of;
using tokenizer::Bpe;
using tokenizer::Vocabulary;

namespace {

using Ids = std::vector<std::int32_t>;
using Merges = std::vector<Bpe::Merge>;

Vocabulary vocabulary_of(const std::vector<std::string>& tokens) {
  Vocabulary vocabulary;
  for (std::size_t id = 0; id < tokens.size(); ++id) vocabulary.add(tokens[id], static_cast<std::int64_t>(id), "test");
  return vocabulary;
}

Ids encode(const Bpe& bpe, std::string_view word) {
  Bpe::Scratch scratch;
  Ids ids;
  std::size_t end = 0;
  bpe.encode(word, scratch, [&](Bpe::Symbol symbol) {
    CHECK(symbol.begin == end);  // tokens lie end to end where every byte has one
    end += bpe.vocabulary().bytes(symbol.id).size();
    ids.push_back(symbol.id);
  });
  CHECK(end == word.size());
  return ids;
}

/// The definition, without any table: join the leftmost pair of the lowest rank until there is none.
Ids merged_by_definition(const Merges& merges, Ids ids) {
  for (;;) {
    std::size_t best_rank = merges.size(), best = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
      for (std::size_t rank = 0; rank < best_rank; ++rank)
        if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) {
          best_rank = rank;
          best = i;
        }
    if (best_rank == merges.size()) return ids;
    ids[best] = merges[best_rank].whole;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

}  // namespace

TEST_CASE("bpe: the alphabet writes every byte as one printable code point") {
  const auto& alphabet = tokenizer::ByteAlphabet::instance();
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(alphabet.to_bytes(alphabet.to_token(all)) == all);
  CHECK(alphabet.to_token("a \n\xFF") == "a\u0120\u010A\u00FF");
  CHECK_FALSE(alphabet.to_bytes("a b"));
  CHECK_FALSE(alphabet.to_bytes("\u4E2D"));
}

TEST_CASE("bpe: the vocabulary finds tokens by bytes, by text and by id") {
  Vocabulary vocabulary;
  for (int i = 0; i < 5000; ++i) vocabulary.add("t" + std::to_string(i), 2 * i, "test");
  vocabulary.add("\u0120x", 1, "test");
  vocabulary.add("a b", 3, "test");
  for (int i = 0; i < 5000; ++i) CHECK(vocabulary.find_bytes("t" + std::to_string(i)) == 2 * i);
  CHECK(vocabulary.find_bytes(" x") == 1);
  CHECK(vocabulary.find("\u0120x") == 1);
  CHECK(vocabulary.text(1) == "\u0120x");
  CHECK(vocabulary.find("a b") == 3);
  CHECK(vocabulary.find_bytes("a b") == -1);
  CHECK(vocabulary.text(3) == "a b");
  CHECK(vocabulary.find("t5000") == -1);
  CHECK(vocabulary.has(4));
  CHECK_FALSE(vocabulary.has(5));
  CHECK_FALSE(vocabulary.has(-1));
  CHECK_FALSE(vocabulary.has(9999));
  CHECK(vocabulary.end() == 9999);
  CHECK(vocabulary.count() == 5002);
  CHECK(Vocabulary().find_bytes("") == -1);
  const auto add = [&](const char* token, std::int64_t id) {
    return message_of([&] { Vocabulary(vocabulary).add(token, id, "file"); });
  };
  CHECK(add("t7", 5) == "file: token \"t7\" has two ids, 14 and 5");
  CHECK(add("a b", 5) == "file: token \"a b\" has two ids, 3 and 5");
  CHECK(add("new", 14) == "file: tokens \"t7\" and \"new\" both have the id 14");
  CHECK(holds(add("new", Vocabulary::max_id), "token \"new\" has the id 1048576"));
  // These two have the same hash.
  Vocabulary alike;
  alike.add("t33278", 0, "test");
  CHECK(alike.find_bytes("t99331") == -1);
  alike.add("t99331", 1, "test");
  CHECK(alike.find_bytes("t33278") == 0);
  CHECK(alike.find_bytes("t99331") == 1);
}

TEST_CASE("bpe: the lowest rank first, the leftmost of equals first") {
  const Merges merges = {{0, 1, 3}, {1, 2, 4}, {0, 0, 5}};  // ab, bc, aa
  const Bpe bpe(vocabulary_of({"a", "b", "c", "ab", "bc", "aa"}), merges, false);
  CHECK(encode(bpe, "abc") == Ids{3, 2});
  CHECK(encode(bpe, "bcab") == Ids{4, 3});
  CHECK(encode(bpe, "aaa") == Ids{5, 0});
  CHECK(encode(bpe, "aaab") == Ids{5, 3});
  CHECK(encode(bpe, "") == Ids{});
}

TEST_CASE("bpe: words of every length merge as the definition says") {
  const std::vector<std::string> letters = {"a", "b", "c", "d"};
  std::vector<std::string> tokens = letters;
  Merges merges;
  Random random(11);
  while (merges.size() < 60) {
    const auto left = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(tokens.size())));
    const auto right = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(tokens.size())));
    const std::string whole = tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)];
    if (whole.size() > 9 || std::find(tokens.begin(), tokens.end(), whole) != tokens.end()) continue;
    merges.push_back({left, right, static_cast<std::int32_t>(tokens.size())});
    tokens.push_back(whole);
  }
  const Bpe bpe(vocabulary_of(tokens), merges, false);
  for (const std::size_t length : {2u, 3u, 7u, 40u, 127u, 128u, 129u, 200u, 1000u}) {
    for (int round = 0; round < (length < 100 ? 200 : 10); ++round) {
      std::string word;
      Ids ids;
      for (std::size_t i = 0; i < length; ++i) {
        ids.push_back(static_cast<std::int32_t>(random.below(4)));
        word += letters[static_cast<std::size_t>(ids.back())];
      }
      const Ids expected = merged_by_definition(merges, ids);
      CHECK(encode(bpe, word) == expected);
      CHECK(encode(bpe, word) == expected);  // what was found out about a word holds the second time
    }
  }
  for (const std::string& token : tokens) CHECK(encode(bpe, token) == encode(bpe, token));
}

TEST_CASE("bpe: a token that its bytes do not merge to comes only where merges are ignored") {
  const auto words = vocabulary_of({"a", "b", "ab", "aba"});
  const Merges merges = {{0, 1, 2}};
  const Bpe merging(words, merges, false);
  for (int round = 0; round < 3; ++round) CHECK(encode(merging, "aba") == Ids{2, 0});  // nor once it was seen
  CHECK(encode(Bpe(words, merges, true), "aba") == Ids{3});
  CHECK(encode(Bpe(words, merges, true), "abab") == Ids{2, 2});
}

TEST_CASE("bpe: of a merge that is listed twice the later rank counts") {
  const Merges merges = {{0, 1, 3}, {1, 2, 4}, {0, 1, 3}};
  CHECK(encode(Bpe(vocabulary_of({"a", "b", "c", "ab", "bc"}), merges, false), "abc") == Ids{0, 4});
}

TEST_CASE("bpe: of any number of merges each is found, and no other") {
  constexpr std::int32_t letters = 66;
  std::vector<std::string> tokens;
  for (std::int32_t i = 0; i < letters; ++i) tokens.emplace_back(1, static_cast<char>('0' + i));
  Merges merges;
  for (std::int32_t i = 0; i + 1 < letters; ++i) {
    merges.push_back({i, i + 1, letters + i});
    tokens.push_back(tokens[static_cast<std::size_t>(i)] + tokens[static_cast<std::size_t>(i + 1)]);
  }
  for (const std::int32_t count : {0, 1, 15, 16, 17, 31, 32, 64, 65}) {
    const Bpe bpe(vocabulary_of(tokens), Merges(merges.begin(), merges.begin() + count), false);
    for (std::int32_t i = 0; i + 1 < letters; ++i)
      CHECK(encode(bpe, tokens[static_cast<std::size_t>(letters + i)]) ==
            (i < count ? Ids{letters + i} : Ids{i, i + 1}));
  }
}

TEST_CASE("bpe: ids go from 0 to the last that a vocabulary may have") {
  const auto add = [](std::int64_t id) { return message_of([&] { Vocabulary().add("a", id, "file"); }); };
  CHECK(add(0) == "nothing was thrown");
  CHECK(add(1'048'575) == "nothing was thrown");
  CHECK(add(1'048'576) == "file: token \"a\" has the id 1048576; expected 0 to 1048575");
  CHECK(add(-1) == "file: token \"a\" has the id -1; expected 0 to 1048575");
  Vocabulary vocabulary;
  CHECK(vocabulary.end() == 0);
  CHECK(vocabulary.count() == 0);
  vocabulary.add("\u0120x", 2, "file");
  vocabulary.add("a b", 5, "file");
  vocabulary.add("", 0, "file");
  CHECK(vocabulary.end() == 6);
  CHECK(vocabulary.count() == 3);
  CHECK(vocabulary.bytes(2) == " x");
  CHECK(vocabulary.bytes(5) == "a b");
  CHECK(vocabulary.is_literal(5));
  CHECK_FALSE(vocabulary.is_literal(2));
  CHECK(vocabulary.find("") == 0);
  CHECK(vocabulary.find("\u4E2D") == -1);
  CHECK_FALSE(vocabulary.has(6));
}

TEST_CASE("bpe: each byte has the point of the alphabet that GPT-2 gives it") {
  const auto& alphabet = tokenizer::ByteAlphabet::instance();
  const auto point = [&](unsigned byte) {
    const char text = static_cast<char>(static_cast<unsigned char>(byte));
    return alphabet.to_token(std::string_view(&text, 1));
  };
  CHECK(point(0x00) == "\u0100");
  CHECK(point(0x20) == "\u0120");
  CHECK(point(0x21) == "!");
  CHECK(point(0x7E) == "~");
  CHECK(point(0x7F) == "\u0121");
  CHECK(point(0xA0) == "\u0142");
  CHECK(point(0xA1) == "\u00A1");
  CHECK(point(0xAC) == "\u00AC");
  CHECK(point(0xAD) == "\u0143");
  CHECK(point(0xAE) == "\u00AE");
  CHECK(point(0xFF) == "\u00FF");
  CHECK(alphabet.to_bytes("\u0143") == "\xAD");
  CHECK_FALSE(alphabet.to_bytes("\u0144"));
  CHECK_FALSE(alphabet.to_bytes("\u00AD"));
  CHECK_FALSE(alphabet.to_bytes("a\u0144"));
}

TEST_CASE("bpe: bytes without a token are the unknown one, or nothing, and places are those of the bytes") {
  const auto words = vocabulary_of({"a", "b", "ab", "?"});
  const Merges merges = {{0, 1, 2}};
  const auto encoded = [&](const Bpe& bpe, std::string_view word) {
    Bpe::Scratch scratch;
    std::string text;
    bpe.encode(word, scratch, [&](Bpe::Symbol symbol) { text += concat(symbol.id, "@", symbol.begin, " "); });
    return text;
  };
  for (const bool ignore_merges : {false, true}) {
    const Bpe leaves(words, merges, ignore_merges), knows(words, merges, ignore_merges, 3);
    CHECK(encoded(leaves, "xabxb") == "2@1 1@4 ");
    CHECK(encoded(leaves, "axb") == "2@0 ");
    CHECK(encoded(leaves, "x") == "");
    CHECK(encoded(leaves, "a") == "0@0 ");
    CHECK(encoded(knows, "xabx") == "3@0 2@1 3@3 ");
    CHECK(encoded(knows, "x") == "3@0 ");
    CHECK(knows.unknown() == 3);
    CHECK(leaves.unknown() == -1);
    CHECK(knows.ignore_merges() == ignore_merges);
    CHECK(knows.merges().size() == 1);
  }
}

}  // namespace bpe_test
