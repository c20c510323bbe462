#include "lora/forecast/rates.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/message_of.hpp"

namespace rates_test {

using namespace lora;
using namespace lora::forecast;

TEST_CASE("rates: a step's time is that of its parts, one after the other, and the largest is what limits it") {
  const Rates rates{.products = 100, .attention = 50, .moved = 20, .thin = 10, .decoded = 5};
  const nn::Work work{.products = 300, .attention = 100, .moved = 20, .thin = 5, .decoded = 10};
  const StepTime time = time_of(work, rates);
  CHECK(time.seconds == 3 + 2 + (1 + 0.5) + 2);
  CHECK(time.limited_by == "products");
  struct Case {
    nn::Work work;
    const char* limited_by;
  };
  for (const Case& one :
       {Case{{.products = 100, .attention = 100}, "attention"},
        Case{{.products = 100, .moved = 20, .thin = 5}, "memory"}, Case{{.attention = 40, .thin = 9}, "memory"},
        Case{{.moved = 20, .decoded = 6}, "decoding weights"}}) {
    CAPTURE(one.limited_by);
    CHECK(time_of(one.work, rates).limited_by == one.limited_by);
  }
}

TEST_CASE("rates: what comes from the host comes beside the work, and counts where it takes longer") {
  const Rates rates{.products = 100, .attention = 1, .moved = 1, .thin = 1, .decoded = 1, .link = 10};
  const nn::Work work{.products = 300};
  CHECK(time_of(work, rates, 29).seconds == 3);
  CHECK(time_of(work, rates, 29).limited_by == "products");
  CHECK(time_of(work, rates, 50).seconds == 5);
  CHECK(time_of(work, rates, 50).limited_by == "the host's link");
}

TEST_CASE("rates: of the processors they are shares of what was measured, in the precision's own") {
  const Limits limits{.f32_gflops = 200, .bf16_gflops = 1000, .gb_per_second = 20};
  const Rates wide = rates_of(limits, Precision::float32), narrow = rates_of(limits, Precision::bfloat16);
  for (const Rates* rates : {&wide, &narrow}) {
    CHECK(rates->products > 0.7 * (rates == &wide ? 200e9 : 1000e9));
    CHECK(rates->products < (rates == &wide ? 200e9 : 1000e9));
    CHECK(rates->attention < 0.6 * (rates == &wide ? 200e9 : 1000e9));
    CHECK(rates->attention > 0.3 * (rates == &wide ? 200e9 : 1000e9));
    for (const double bytes : {rates->moved, rates->thin}) {
      CHECK(bytes > 0.4 * 20e9);
      CHECK(bytes <= 20e9);
    }
    CHECK(rates->decoded > 0);
    CHECK(rates->link == 0);
  }
  CHECK(narrow.moved < wide.moved);
  CHECK(rates_of(limits, Precision::float16).products == narrow.products);
}

TEST_CASE("rates: of an NPU they are those that docs/ascend_forecast.md states, and other kinds are refused") {
  CHECK(npu_of("ascend910b3").peak == 294.9e12);
  CHECK(npu_of("ascend910b1").peak == 363.7e12);
  CHECK(npu_of("ascend910b1").memory_gib == 61);
  const Rates rates = rates_of(npu_of("ascend910b3"), Precision::bfloat16);
  CHECK(rates.products == doctest::Approx(206.4e12).epsilon(1e-3));
  CHECK(rates.moved == 1.28e12);
  CHECK(rates.link == 20e9);
  CHECK(rates_of(npu_of("ascend910b3"), Precision::float32).products == rates.products / 4);
  CHECK(test::message_of<ConfigError>([] { npu_of("ascend910b"); }) ==
        "key device_type: given ascend910b, of which no forecast is made; allowed: ascend910b1, ascend910b3");
}

TEST_CASE("rates: shares of the processors' limits are those that steps were measured to reach") {
  const Limits limits{.f32_gflops = 200, .bf16_gflops = 1000, .gb_per_second = 20};
  const auto check = [](const Rates& rates, double products, double attention, double moved, double thin,
                        double decoded) {
    CHECK(rates.products == doctest::Approx(products));
    CHECK(rates.attention == doctest::Approx(attention));
    CHECK(rates.moved == doctest::Approx(moved));
    CHECK(rates.thin == doctest::Approx(thin));
    CHECK(rates.decoded == doctest::Approx(decoded));
    CHECK(rates.link == 0);
    CHECK(rates.peer == doctest::Approx(2e9));
    CHECK(rates.network == 0);
    CHECK(rates.call == 50e-6);
  };
  check(rates_of(limits, Precision::float32), 186e9, 96e9, 19e9, 16e9, 2e9);
  check(rates_of(limits, Precision::bfloat16), 880e9, 480e9, 11e9, 10e9, 2e9);
  check(rates_of(limits, Precision::float16), 880e9, 96e9, 11e9, 10e9, 2e9);
}

TEST_CASE("rates: of an NPU each is a share of its sheet's") {
  const Npu npu{"x", 100e12, 32};
  const Rates half = rates_of(npu, Precision::float16), single = rates_of(npu, Precision::float32);
  CHECK(half.products == doctest::Approx(70e12));
  CHECK(half.attention == half.products);
  CHECK(single.products == doctest::Approx(17.5e12));
  CHECK(single.attention == single.products);
  for (const Rates& rates : {half, single}) {
    CHECK(rates.moved == doctest::Approx(1.28e12));
    CHECK(rates.thin == rates.moved);
    CHECK(rates.decoded == doctest::Approx(1.28e12 / 3));
    CHECK(rates.link == 20e9);
    CHECK(rates.peer == doctest::Approx(21e9));
    CHECK(rates.network == doctest::Approx(20e9));
    CHECK(rates.call == 50e-6);
  }
  CHECK(npus().size() == 2);
  CHECK(npu_of("ascend910b3").memory_gib == 61);
}

TEST_CASE("rates: of equal parts the first limits, and a link as fast as the work does not") {
  const Rates rates{.products = 1, .attention = 1, .moved = 1, .thin = 1, .decoded = 1, .link = 2};
  CHECK(time_of({.products = 3, .attention = 3, .decoded = 3}, rates).limited_by == "products");
  CHECK(time_of({.attention = 3, .moved = 1, .thin = 2, .decoded = 3}, rates).limited_by == "attention");
  CHECK(time_of({.products = 3}, rates, 6).limited_by == "products");
  CHECK(time_of({.products = 3}, rates, 6.5).limited_by == "the host's link");
  CHECK(time_of({.products = 3}, rates, 6.5).seconds == 3.25);
  CHECK(time_of({.products = 3}, {.products = 1, .attention = 1, .moved = 1, .thin = 1, .decoded = 1}, 0).seconds == 3);
  CHECK(time_of({}, rates).seconds == 0);
}

TEST_CASE("rates: ranks send to those of their host and to others at once, and wait for each collective") {
  const Rates rates{.products = 1,
                    .attention = 1,
                    .moved = 1,
                    .thin = 1,
                    .decoded = 1,
                    .link = 2,
                    .peer = 10,
                    .network = 5,
                    .call = 0.25};
  CHECK(time_of_collectives(3, 100, 1, 1, rates) == 0);
  CHECK(time_of_collectives(2, 70, 8, 8, rates) == 0.5 + 1);     // 10 bytes to each
  CHECK(time_of_collectives(2, 150, 16, 8, rates) == 0.5 + 16);  // 80 of them to the other host
  CHECK(time_of_collectives(0, 20, 3, 1, rates) == 4);           // each on a host of its own
  CHECK(time_of_collectives(0, 300, 4, 3, rates) == 20);         // 100 to each
  const StepTime time = time_of({.products = 3}, rates, 4, {.alone = 2});
  CHECK(time.seconds == 5);
  CHECK(time.between_ranks == 2);
  CHECK(time.limited_by == "products");
  CHECK(time_of({.products = 3}, rates, 4, {.alone = 3.5}).limited_by == "exchanges between ranks");
  CHECK(time_of({.products = 1}, rates, 8, {.alone = 3.5}).limited_by == "the host's link");
  CHECK(time_of({.products = 3}, rates, 4, {.alone = 3}).limited_by == "products");         // as long
  CHECK(time_of({.products = 1}, rates, 8, {.alone = 4}).limited_by == "the host's link");  // as long
  const StepTime hidden = time_of({.products = 3}, rates, 0, {.alone = 0.5, .beside_all = 2});
  CHECK(hidden.seconds == 3.5);
  CHECK(hidden.between_ranks == 0.5);
  CHECK(hidden.hidden == 2);
  CHECK(hidden.limited_by == "products");
  const StepTime longer =
      time_of({.products = 3}, rates, 8, {.alone = 0.5, .beside_all = 5});  // than the work, and than what is streamed
  CHECK(longer.seconds == 5.5);
  CHECK(longer.between_ranks == 1.5);
  CHECK(longer.hidden == 4);
  CHECK(longer.limited_by == "exchanges between ranks");
  CHECK(time_of({.products = 3}, rates, 8, {.beside_all = 4}).limited_by == "the host's link");  // as long
  // Beside backward, which is half of the 3 s.
  const StepTime half = time_of({.products = 3}, rates, 0, {.beside_backward = 2, .beside_all = 0.25});
  CHECK(half.seconds == 3.5);
  CHECK(half.between_ranks == 0.5);
  CHECK(half.hidden == 1.75);
  CHECK(time_of({.products = 3}, rates, 0, {.beside_backward = 2, .beside_all = 2}).hidden == 3);
  // Where there is no other on its host, or no other host, nothing is known of that way, and needed.
  Rates far = rates, near = rates;
  far.peer = near.network = 0;
  CHECK(time_of_collectives(0, 20, 3, 1, far) == 4);
  CHECK(time_of_collectives(2, 70, 8, 8, near) == 0.5 + 1);
  const Rates whole{.products = 1,
                    .attention = 2,
                    .moved = 3,
                    .thin = 4,
                    .decoded = 5,
                    .link = 6,
                    .peer = 7,
                    .network = 8,
                    .call = 9};
  Rates shared = whole;
  CHECK(&(shared /= 2) == &shared);
  for (const auto rate : {&Rates::products, &Rates::attention, &Rates::moved, &Rates::thin, &Rates::decoded,
                          &Rates::link, &Rates::peer, &Rates::network})
    CHECK(shared.*rate == whole.*rate / 2);
  CHECK(shared.call == 9);
}

}  // namespace rates_test
