#include "lora/run/environment.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

namespace environment_test {

using namespace lora;
using namespace lora::run;

TEST_CASE("environment: a command line is quoted as a shell reads it") {
  const std::vector<const char*> words = {"lora", "train", "--a=b", "two words", "it's", "", "$HOME", "x,y"};
  CHECK(quoted_command(words) == "lora train --a=b 'two words' 'it'\\''s' '' '$HOME' x,y");
}

TEST_CASE("environment: the peak of memory holds what was touched") {
  const double before = resident_memory_gib();
  CHECK(before > 0);
  {
    std::vector<char> block(std::size_t{64} << 20);
    std::memset(block.data(), 1, block.size());
    asm volatile("" : : "r"(block.data()) : "memory");  // else a compiler may see that nobody reads it
    CHECK(resident_memory_gib() > 0.05);
  }
  CHECK(peak_memory_gib() >= before);
  CHECK(peak_memory_gib() >= 64.0 / 1024);
}

TEST_CASE("environment: the facts of the machine and the build") {
  const std::string text = describe_environment(3);
  for (const char* line : {"build: lora ", "\nsystem: Linux", "\nthreads: 3 of ", "\nmemory: "})
    CHECK(text.find(line) != std::string::npos);
}

}  // namespace environment_test
