// As in a build that found neither yaml-cpp nor the other libraries that may be missing, as the other sources here.
#undef LORA_WITH_CSV
#undef LORA_WITH_ONEDNN
#undef LORA_WITH_PARQUET
#undef LORA_WITH_YAML
#undef LORA_WITH_ZLIB
#undef LORA_WITH_ZSTD
#include "lora/io/formats/yaml.hpp"

#include <doctest/doctest.h>

#include "support/message_of.hpp"

namespace yaml_test {

using namespace lora;

TEST_CASE("without libraries: a file of settings in YAML is refused by the name of what reads it") {
  CHECK(
      test::message_of<Error>([] { (void)io::parse_yaml("seed: 1", "r.yaml"); }) ==
      "r.yaml: YAML, which this program was built without (yaml-cpp was not found); expected JSON, with the same keys");
}

}  // namespace yaml_test
