#include "lora/io/tensorboard.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/temp_folder.hpp"
#include "support/tensorboard_events.hpp"

namespace tensorboard_test {

using namespace lora;
using namespace lora::io;

namespace {

const char* const file_name = "events.out.tfevents.lora";

void write_steps(TensorBoardWriter& writer, Index first, Index last) {
  for (Index step = first; step <= last; ++step) {
    const TensorBoardWriter::Scalar scalars[] = {{"train/loss", 0.5 * static_cast<double>(step)}, {"lr", 1e-3}};
    writer.write(step, scalars);
  }
}

}  // namespace

TEST_CASE("tensorboard: a file of any size is gone on after, and read piece by piece") {
  const test::TempFolder folder;
  {
    TensorBoardWriter writer(folder.path());
    write_steps(writer, 1, 20);
  }
  const auto path = folder / file_name;
  const auto bytes = std::filesystem::file_size(path);
  const auto kept = TensorBoardWriter::kept_through(folder.path(), 9).bytes;
  CHECK(test::steps_of_events(read_file(path).substr(0, kept)).back() == 9);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{13}, std::size_t{64}}) {
    CHECK(TensorBoardWriter::kept_through(folder.path(), 9, piece).bytes == kept);
    CHECK(TensorBoardWriter::kept_through(folder.path(), 99, piece).bytes == bytes);
  }
  CHECK(std::filesystem::file_size(path) == bytes);                       // asking changes nothing
  std::filesystem::resize_file(path, bytes + (std::uintmax_t{1} << 30));  // of holes
  { TensorBoardWriter writer(folder.path(), Index{99}); }
  CHECK(std::filesystem::file_size(path) == bytes);
}

TEST_CASE("tensorboard: an event has the bytes of the protocol") {
  const test::TempFolder folder;
  TensorBoardWriter writer(folder.path());
  const TensorBoardWriter::Scalar scalars[] = {{"a/b", 1.5}};
  writer.write(300, scalars);
  const std::string bytes = read_file(folder / file_name);
  const auto header = io::detail::first_record(bytes);
  REQUIRE(header);
  // As every event file begins: the length 24 and its masked checksum.
  CHECK(header->substr(0, 12) == std::string_view("\x18\0\0\0\0\0\0\0\xA3\x7F\x4B\x22", 12));
  CHECK(header->substr(12 + 9, 15) == std::string_view("\x1A\x0D"
                                                       "brain.Event:2"));
  const auto record = io::detail::first_record(std::string_view(bytes).substr(header->size()));
  REQUIRE(record);
  CHECK(header->size() + record->size() == bytes.size());
  // After the wall time: field 2, varint 300; field 5, 12 bytes: field 1, 10 bytes: field 1 "a/b", field 2 float 1.5.
  const std::string_view expected(
      "\x10\xAC\x02\x2A\x0C\x0A\x0A\x0A\x03"
      "a/b"
      "\x15\x00\x00\xC0\x3F",
      17);
  CHECK(record->substr(12 + 9, 17) == expected);
}

TEST_CASE("tensorboard: a resumed run keeps the events up to its step and goes on after them") {
  const test::TempFolder folder;
  {
    TensorBoardWriter writer(folder.path());
    write_steps(writer, 1, 200);
  }
  {
    TensorBoardWriter writer(folder.path(), Index{150});
    write_steps(writer, 151, 152);
  }
  const auto steps = test::steps_of_events(read_file(folder / file_name));
  REQUIRE(steps.size() == 153);
  for (Index i = 0; i < 153; ++i) CHECK(steps[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("tensorboard: an event that a killed run left cut or damaged goes") {
  const test::TempFolder folder;
  const auto path = folder / file_name;
  {
    TensorBoardWriter writer(folder.path());
    write_steps(writer, 1, 3);
  }
  const std::string whole = read_file(path);
  for (const std::size_t cut : {std::size_t{1}, std::size_t{4}, std::size_t{20}}) {
    write_file(path, std::string_view(whole).substr(0, whole.size() - cut));
    { TensorBoardWriter writer(folder.path(), Index{9}); }
    CHECK(test::steps_of_events(read_file(path)) == std::vector<Index>{0, 1, 2});
  }
  std::string damaged = whole;
  damaged[whole.size() - 8] ^= 1;
  write_file(path, std::string_view(damaged));
  { TensorBoardWriter writer(folder.path(), Index{9}); }
  CHECK(test::steps_of_events(read_file(path)) == std::vector<Index>{0, 1, 2});
}

TEST_CASE("tensorboard: a new run starts a new file, a resumed one without a file too") {
  const test::TempFolder folder;
  for (int run = 0; run < 2; ++run) {
    TensorBoardWriter writer(folder.path());
    write_steps(writer, 1, 1);
  }
  CHECK(test::steps_of_events(read_file(folder / file_name)) == std::vector<Index>{0, 1});
  const test::TempFolder other;
  TensorBoardWriter writer(other.path(), Index{3});
  CHECK(test::steps_of_events(read_file(other / file_name)) == std::vector<Index>{0});
}

}  // namespace tensorboard_test
