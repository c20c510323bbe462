#include <cstdio>
#include <lora/core/config.hpp>
#include LORA_HEADERS
#include <string>
#include <string_view>

std::string products_as_the_other_unit_sees_them();

int main() {
  if (std::string_view(LORA_VERSION) != EXPECTED_VERSION) {
    std::printf("version %s, expected %s\n", LORA_VERSION, EXPECTED_VERSION);
    return 1;
  }
  lora::cpu::Device dev(1);
  const std::string products = lora::cpu::describe_products(dev);
  if (products_as_the_other_unit_sees_them() != products) {
    std::printf("the two translation units disagree\n");
    return 1;
  }
  std::printf("lora %s, products by %s\n", LORA_VERSION, products.c_str());
  return 0;
}
