#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "idempotency/detail/fingerprint_field.hpp"
#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {

/// How two fingerprints relate.
enum class FingerprintMatch : std::uint8_t {
  same,
  different,
  not_comparable,  ///< made under schemes that have nothing in common
};

/// The versioned SHA-256 of what a request means (FIPS 180-4, through OpenSSL's libcrypto).
///
/// A key used again with another fingerprint is a misuse and is never replayed. The scheme's number
/// is stored beside the digest. When an application changes what goes into its fingerprint it
/// raises the scheme and keeps supplying the earlier one until the old records are gone:
/// `Fingerprint::of(id, cents, currency).as_scheme(2).or_earlier(Fingerprint::of(id, cents))`.
///
/// Thread safety: a value; distinct copies may be used concurrently.
class Fingerprint {
 public:
  using Digest = std::array<std::uint8_t, 32>;

  struct Part {
    std::uint8_t scheme = 1;
    Digest digest{};
    friend bool operator==(const Part&, const Part&) = default;
  };

  /// The digest of the bytes as they are.
  [[nodiscard]] static Fingerprint of_bytes(std::string_view bytes);

  /// The digest of a sequence of fields: text, integers, floating point, bool, enumerators,
  /// optionals, and pairs, tuples, sequences and ordered containers of them.
  ///
  /// Every field goes in with its kind and length, so that ("ab", "c") and ("a", "bc") differ.
  /// Integers and enumerators count by value, not by width or sign; floating point by value (all
  /// NaNs are one, -0.0 is 0.0) and never equal to an integer; a `char` as text; an optional that
  /// holds a value as this value. Unordered containers are refused: their order says nothing.
  template <class... Fields>
  [[nodiscard]] static Fingerprint of(const Fields&... fields) {
    static_assert(
        (detail::Fingerprintable<std::decay_t<const Fields&>> && ...),
        "idempotency: a field of Fingerprint::of has no canonical form: pass text, numbers, "
        "bool, enumerators, optionals, pairs, tuples or ordered ranges of these.");
    detail::FingerprintInput input;
    if constexpr ((detail::Fingerprintable<std::decay_t<const Fields&>> && ...)) {
      (detail::FingerprintField<std::decay_t<const Fields&>>::add(input, fields), ...);
    }
    return Fingerprint(Part{1, input.digest()});
  }

  /// The digest of a JSON text in canonical form: order of members, white space, escapes and the
  /// spelling of numbers (1, 1.0, 10e-1) do not matter. Numbers are compared exactly as written,
  /// not as rounded to binary: 9007199254740993 is not 9007199254740992.
  ///
  /// Errors: `Errc::invalid_fingerprint` for text that is not JSON, is not UTF-8, names a member
  /// twice, nests deeper than 256 or holds a number beyond the range of a double.
  [[nodiscard]] static Fingerprint of_json(std::string_view text);

  /// Rebuilds what a store kept.
  [[nodiscard]] static Fingerprint from_stored(std::uint8_t scheme, const Digest& digest) noexcept {
    return Fingerprint(Part{scheme, digest});
  }

  /// The same digest under a scheme number of the application's own (1-255; 1 is the default).
  ///
  /// Errors: `Errc::invalid_argument` for 0.
  [[nodiscard]] Fingerprint as_scheme(std::uint8_t scheme) const;

  /// Adds the fingerprint under the scheme used before, for comparison with older records.
  ///
  /// Errors: `Errc::invalid_argument` when both have the same scheme, or when `earlier` has an
  /// earlier one itself: one step back is kept.
  [[nodiscard]] Fingerprint or_earlier(const Fingerprint& earlier) const;

  /// What is stored with a new record.
  [[nodiscard]] const Part& current() const noexcept { return current_; }
  [[nodiscard]] const std::optional<Part>& earlier() const noexcept { return earlier_; }

  /// Compares with what a record holds, under the record's scheme.
  [[nodiscard]] FingerprintMatch match(const Part& stored) const noexcept {
    if (stored.scheme == current_.scheme) return same_or_not(stored, current_);
    if (earlier_ && stored.scheme == earlier_->scheme) return same_or_not(stored, *earlier_);
    return FingerprintMatch::not_comparable;
  }

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;

 private:
  explicit Fingerprint(const Part& current) noexcept : current_(current) {}
  static FingerprintMatch same_or_not(const Part& a, const Part& b) noexcept {
    return a == b ? FingerprintMatch::same : FingerprintMatch::different;
  }

  Part current_;
  std::optional<Part> earlier_;
};

}  // namespace v0
}  // namespace idempotency
