#include "lora/data/batches/token_store.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace token_store_test {

using namespace lora;
using data::TokenStore;

TEST_CASE("token store: what is not there can't be read, in memory or from a file, nor can anything come later") {
  const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5};
  for (const std::size_t in_memory : {std::size_t{100}, std::size_t{2}}) {
    CAPTURE(in_memory);
    TokenStore store(in_memory);
    store.append(tokens);
    if (in_memory == 2)
      CHECK_THROWS_WITH_AS((void)store.read(0, 1, 1),
                           "[token_store] 1 tokens from 0 on were asked for, of a store that is still written",
                           ShapeError);
    store.finish();
    CHECK(store.read(3, 2, 2).back() == 5);
    CHECK(store.read(5, 0, 0).empty());
    CHECK_THROWS_WITH_AS((void)store.read(3, 3, 3), "[token_store] 3 tokens from 3 on were asked for, of 5",
                         ShapeError);
    CHECK_THROWS_AS((void)store.read(6, 0, 0), ShapeError);
    CHECK_THROWS_AS((void)store.read(1, SIZE_MAX, 0), ShapeError);
    if (in_memory == 2)
      CHECK_THROWS_WITH_AS(store.append(tokens), "[token_store] tokens were appended after the last", Error);
  }
}

}  // namespace token_store_test
