#include "lora/core/hash.hpp"

#include <doctest/doctest.h>

namespace hash_test {

using namespace lora;

TEST_CASE("hash: texts give the known answers of FNV-1a") {
  // test_fnv.c of its authors
  static_assert(text_hash("") == 0xCBF29CE484222325u);
  CHECK(text_hash("a") == 0xAF63DC4C8601EC8Cu);
  CHECK(text_hash("foobar") == 0x85944171F73967E8u);
  CHECK(text_hash("\xFF") == (0xCBF29CE484222325u ^ 0xFFu) * 0x100000001B3u);  // bytes count as unsigned
}

}  // namespace hash_test
