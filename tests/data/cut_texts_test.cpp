#include "lora/data/batches/cut_texts.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "lora/data/batches/token_store.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace cut_texts_test {

using namespace lora;

namespace {

std::vector<std::int32_t> counting(std::int32_t first, std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

/// Bytes of the mapping that an address lies in that are in this process's memory.
std::size_t resident_around(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream mappings("/proc/self/smaps");
  bool inside = false;
  std::size_t begin = 0, end = 0, kib = 0;
  for (std::string line; std::getline(mappings, line);) {
    if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2) inside = begin <= place && place < end;
    if (inside && std::sscanf(line.c_str(), "Rss: %zu kB", &kib) == 1) return kib << 10;
  }
  return 0;
}

std::vector<std::int32_t> listed(std::span<const std::int32_t> tokens) { return {tokens.begin(), tokens.end()}; }

}  // namespace

TEST_CASE("cut texts: sequences are records but where texts have blocks") {
  data::CutTexts cut;
  CHECK(cut.empty());
  CHECK(cut.sequence_of(7) == 7);
  CHECK(cut[3].record == 3);
  cut.add(1, counting(100, 5), 3);
  cut.add(2, counting(200, 4), 2);
  cut.add(5, counting(300, 9), 4);
  cut.finish();
  const std::vector<Index> records = {0, 1, 1, 1, 2, 2, 3, 4, 5, 5, 5, 5, 6};
  const std::vector<Index> blocks = {0, 0, 1, 2, 0, 1, 0, 0, 0, 1, 2, 3, 0};
  for (Index i = 0; i < std::ssize(records); ++i) {
    CAPTURE(i);
    const auto at = static_cast<std::size_t>(i);
    const bool block = records[at] == 1 || records[at] == 2 || records[at] == 5;
    CHECK(cut.record_of(i) == records[at]);
    CHECK(cut.is_block(i) == block);
    CHECK(cut[i].record == records[at]);
    CHECK(cut[i].block == blocks[at]);
    CHECK(cut[i].text.empty() == !block);
    CHECK(cut.sequence_of(records[at]) == i - blocks[at]);
  }
  CHECK(cut.sequence_of(7) == 13);
  CHECK(listed(cut[5].text) == counting(200, 4));
  CHECK(listed(cut[8].text) == counting(300, 9));
}

TEST_CASE("cut texts: sequences of some records, of which none is counted past what a number holds") {
  data::CutTexts cut;
  CHECK(cut.sequences_of(std::vector<Index>{4, 1}).numbers() == std::vector<Index>{4, 1});
  cut.add(1, counting(0, 4), 3);
  CHECK(cut.sequences_of(std::vector<Index>{4, 1}).numbers() == std::vector<Index>{6, 1, 2, 3});
  CHECK(cut.sequences_of(data::Sequences::below(3)).numbers() == std::vector<Index>{0, 1, 2, 3, 4});
  cut.add(3, counting(0, 4), data::Sequences::most);
  CHECK(cut.sequences_of(std::vector<Index>{0, 2}).numbers() == std::vector<Index>{0, 4});
  CHECK_THROWS_WITH_AS(cut.sequences_of(std::vector<Index>{0, 4}),
                       "sequence 4294967300; at most 4294967295 are supported", ConfigError);
}

TEST_CASE("cut texts: of a long text in a file only the blocks that are read count as read") {
  // Pages are given back once 32 MiB were read: not before the fourth block of eight.
  constexpr std::size_t tokens = std::size_t{16} << 20;
  data::CutTexts cut(data::TokenStore(0));
  cut.add(0, counting(0, tokens), 8);
  cut.finish();
  const std::span<const std::int32_t> text = cut[0].text;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < tokens; i += 512) sum += text[i];
  CHECK(sum > 0);
  const std::size_t half = tokens * sizeof(std::int32_t) / 2;
  for (Index block = 1; block < 3; ++block) CHECK(cut[block].block == block);
  CHECK(resident_around(text.data()) >= half);
  CHECK(cut[3].block == 3);
  CHECK(resident_around(text.data()) < half);
}

TEST_CASE("token store: the same tokens from memory and from a temporary file, of which no name is left") {
  const test::TempFolder temp;
  const test::Environment folder("TMPDIR", temp.path().native());
  for (const std::size_t most : {1000u, 25u, 7u, 0u}) {
    data::TokenStore store(most);
    for (std::int32_t i = 0; i < 40; ++i) store.append(counting(10 * i, 10));
    CHECK(std::filesystem::is_empty(temp.path()));
    store.finish();
    REQUIRE(store.size() == 400);
    CHECK(listed(store.read(0, 400, 400)) == counting(0, 400));
    CHECK(listed(store.read(123, 3, 3)) == counting(123, 3));
  }
  data::TokenStore none;
  none.finish();
  CHECK(none.size() == 0);
}

TEST_CASE("token store: a folder that is not there is named, and the variable that names another") {
  const test::TempFolder temp;
  const test::Environment folder("TMPDIR", (temp / "missing").native());
  data::TokenStore store(2);
  const std::string told = test::message_of<IoError>([&] { store.append(counting(0, 5)); });
  CHECK(told == concat("cannot write the tokens of long texts to a temporary file in ", (temp / "missing").native(),
                       ": No such file or directory; TMPDIR names another folder"));
}

}  // namespace cut_texts_test
