#include LORA_HEADERS
#include <string>

std::string products_as_the_other_unit_sees_them() {
  lora::cpu::Device dev(1);
  return lora::cpu::describe_products(dev);
}
