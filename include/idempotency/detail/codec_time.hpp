#pragma once

#include <chrono>
#include <string>

#include "idempotency/detail/codec_scalars.hpp"

namespace idempotency {
inline namespace v0 {

/// The period is a part of the form: seconds are not read as milliseconds.
template <Encodable Rep, class Period>
struct Codec<std::chrono::duration<Rep, Period>> {
  using Duration = std::chrono::duration<Rep, Period>;
  template <class Form>
  static void describe(Form& form) {
    form.add('D');
    detail::describe_number(form, static_cast<std::size_t>(Period::type::num));
    detail::describe_number(form, static_cast<std::size_t>(Period::type::den));
    detail::describe<Rep>(form);
  }
  static void encode(const Duration& value, std::string& out) {
    Codec<Rep>::encode(value.count(), out);
  }
  static Duration decode(ByteReader& in) { return Duration(Codec<Rep>::decode(in)); }
};

/// Of the system clock only: other clocks' times mean nothing to another process.
template <Encodable Duration>
struct Codec<std::chrono::time_point<std::chrono::system_clock, Duration>> {
  using TimePoint = std::chrono::time_point<std::chrono::system_clock, Duration>;
  template <class Form>
  static void describe(Form& form) {
    form.add('T');
    detail::describe<Duration>(form);
  }
  static void encode(const TimePoint& value, std::string& out) {
    Codec<Duration>::encode(value.time_since_epoch(), out);
  }
  static TimePoint decode(ByteReader& in) { return TimePoint(Codec<Duration>::decode(in)); }
};

}  // namespace v0
}  // namespace idempotency
