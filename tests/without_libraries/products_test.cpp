// As in a build that found no oneDNN: all products are Eigen's.
#undef LORA_WITH_CSV
#undef LORA_WITH_ONEDNN
#undef LORA_WITH_PARQUET
#undef LORA_WITH_YAML
#undef LORA_WITH_ZLIB
#undef LORA_WITH_ZSTD
#include <doctest/doctest.h>

#undef TEST_CASE
#define TEST_CASE(name) DOCTEST_TEST_CASE("without oneDNN: " name)
#include "kernel/gemm_sum_test.cpp"
#include "kernel/gemm_test.cpp"
#include "kernel/low_rank_test.cpp"

TEST_CASE("Eigen alone forms products") {
  lora::cpu::Device dev(1);
  CHECK(lora::cpu::gemm_engines(dev) == std::vector<lora::cpu::GemmEngine>{lora::cpu::GemmEngine::eigen});
}
#undef TEST_CASE
#define TEST_CASE(name) DOCTEST_TEST_CASE(name)
