// libFuzzer: bytes that `decode_result` accepts are a value whose own bytes decode to the same value.
//
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude tests/fuzz/codec_fuzz.cpp
//     src/core/codec.cpp -o codec_fuzz && ./codec_fuzz -max_total_time=60

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "idempotency/codec.hpp"

namespace {

using Value =
    std::variant<std::map<std::string, std::vector<int>>, std::optional<std::vector<std::byte>>,
                 std::tuple<double, std::chrono::milliseconds, char>, std::set<std::uint16_t>,
                 std::vector<std::tuple<>>,
                 std::vector<std::optional<std::pair<bool, std::int64_t>>>>;

template <class T>
void check(std::string_view bytes) {
  std::string written;
  try {
    written = idempotency::encode_result(idempotency::decode_result<T>(bytes));
  } catch (const idempotency::Error& error) {
    const idempotency::Errc code = error.code();
    if (code != idempotency::Errc::codec_corrupt && code != idempotency::Errc::codec_mismatch) {
      std::abort();
    }
    return;
  }
  if (written.size() != bytes.size()) std::abort();
  if (idempotency::encode_result(idempotency::decode_result<T>(written)) != written) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check<Value>(bytes);
  check<std::string>(bytes);
  std::string with_form;
  idempotency::detail::append_form<Value>(with_form);
  check<Value>(with_form.append(bytes));
  return 0;
}
