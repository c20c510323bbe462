#include <cstdio>
#include <lora/core/config.hpp>
#include <lora/core/shape.hpp>
#include <string_view>

lora::Shape shape_from_the_other_unit();

int main() {
  if (std::string_view(LORA_VERSION) != EXPECTED_VERSION) {
    std::printf("version %s, expected %s\n", LORA_VERSION, EXPECTED_VERSION);
    return 1;
  }
  if (shape_from_the_other_unit() != lora::Shape{2, 3}) {
    std::printf("the two translation units disagree about a shape\n");
    return 1;
  }
  std::printf("lora %s\n", LORA_VERSION);
  return 0;
}
