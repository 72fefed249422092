#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "idempotency/store.hpp"
#include "idempotency/transition.hpp"

namespace idempotency {
inline namespace v0 {

// Found by GoogleTest through the namespace of the types. Texts that may be long are cut.

namespace testing::detail {

inline void print_bytes(std::string_view bytes, std::ostream* out) {
  constexpr std::size_t shown = 48;
  *out << '"';
  for (const char c : bytes.substr(0, shown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
      *out << c;
    } else {
      constexpr std::string_view digits = "0123456789abcdef";
      *out << "\\x" << digits[byte >> 4U] << digits[byte & 0xfU];
    }
  }
  *out << '"';
  if (bytes.size() > shown) *out << "... (" << bytes.size() << " bytes)";
}

inline void print_optional(const std::optional<std::string>& bytes, std::ostream* out) {
  if (!bytes) {
    *out << "absent";
  } else {
    print_bytes(*bytes, out);
  }
}

inline std::string hex_of(const std::uint8_t* bytes, std::size_t size) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    text += digits[bytes[i] >> 4U];
    text += digits[bytes[i] & 0xfU];
  }
  return text;
}

}  // namespace testing::detail

inline void PrintTo(const Key& key, std::ostream* out) {
  testing::detail::print_bytes(key.text(), out);
}

inline void PrintTo(Errc code, std::ostream* out) { *out << to_string(code); }
inline void PrintTo(RecordState state, std::ostream* out) { *out << to_string(state); }
inline void PrintTo(RecordMode mode, std::ostream* out) { *out << to_string(mode); }

inline void PrintTo(Retryability retryability, std::ostream* out) {
  *out << (retryability == Retryability::retryable ? "retryable" : "permanent");
}

inline void PrintTo(const OwnerToken& token, std::ostream* out) {
  *out << testing::detail::hex_of(token.bytes().data(), token.bytes().size());
}

inline void PrintTo(const Ownership& ownership, std::ostream* out) {
  PrintTo(ownership.owner, out);
  *out << " at fence " << ownership.fence;
}

inline void PrintTo(const Fingerprint::Part& part, std::ostream* out) {
  constexpr std::size_t enough = 4;
  *out << "scheme " << static_cast<int>(part.scheme) << ' '
       << testing::detail::hex_of(part.digest.data(), enough) << "...";
}

inline void PrintTo(FingerprintMatch match, std::ostream* out) {
  switch (match) {
    case FingerprintMatch::same:
      *out << "same";
      return;
    case FingerprintMatch::different:
      *out << "different";
      return;
    case FingerprintMatch::not_comparable:
      *out << "not_comparable";
      return;
  }
}

inline void PrintTo(WriteOutcome outcome, std::ostream* out) {
  *out << (outcome == WriteOutcome::stored ? "stored" : "lost");
}

inline void PrintTo(ReleaseOutcome outcome, std::ostream* out) {
  switch (outcome) {
    case ReleaseOutcome::released:
      *out << "released";
      return;
    case ReleaseOutcome::lost:
      *out << "lost";
      return;
    case ReleaseOutcome::unknown:
      *out << "unknown";
      return;
  }
}

inline void PrintTo(const Failure& failure, std::ostream* out) {
  PrintTo(failure.retryability, out);
  *out << " failure, reason ";
  testing::detail::print_bytes(failure.reason, out);
  *out << ", result ";
  testing::detail::print_optional(failure.result, out);
}

inline void PrintTo(const Acquired& outcome, std::ostream* out) {
  *out << "Acquired{fence " << outcome.fence << ", attempt " << outcome.attempt << '}';
}

inline void PrintTo(const InProgress& outcome, std::ostream* out) {
  *out << "InProgress{lease ends in " << outcome.lease_remaining.count() << " ms}";
}

inline void PrintTo(const Completed& outcome, std::ostream* out) {
  *out << "Completed{result ";
  testing::detail::print_optional(outcome.result, out);
  *out << ", for " << outcome.retention_remaining.count() << " ms, fence " << outcome.fence << '}';
}

inline void PrintTo(const Failed& outcome, std::ostream* out) {
  *out << "Failed{";
  PrintTo(outcome.failure, out);
  *out << ", for " << outcome.retention_remaining.count() << " ms, fence " << outcome.fence << '}';
}

inline void PrintTo(const Uncertain& outcome, std::ostream* out) {
  *out << "Uncertain{fence " << outcome.fence << ", since "
       << outcome.since.time_since_epoch().count() << '}';
}

inline void PrintTo(const Mismatch& outcome, std::ostream* out) {
  *out << "Mismatch{";
  PrintTo(outcome.match, out);
  *out << ", stored scheme " << static_cast<int>(outcome.stored_scheme) << '}';
}

inline void PrintTo(const NotIssued& /*outcome*/, std::ostream* out) { *out << "NotIssued"; }

inline void PrintTo(const Record& record, std::ostream* out) {
  *out << "Record{";
  PrintTo(record.key, out);
  *out << ", " << to_string(record.state) << ", " << to_string(record.mode)
       << (record.effect_marked ? ", effect marked" : "") << ", ";
  PrintTo(record.ownership, out);
  *out << ", attempt " << record.attempt;
  if (record.lease_until)
    *out << ", lease until " << record.lease_until->time_since_epoch().count();
  if (record.expires_at) *out << ", expires at " << record.expires_at->time_since_epoch().count();
  *out << ", result ";
  testing::detail::print_optional(record.result, out);
  if (record.failure) {
    *out << ", ";
    PrintTo(*record.failure, out);
  }
  *out << '}';
}

inline void PrintTo(Phase phase, std::ostream* out) {
  constexpr std::string_view names[] = {
      "absent",           "processing", "success", "failed_retryable",
      "failed_permanent", "uncertain",  "issued"};
  *out << names[static_cast<std::size_t>(phase)];
}

inline void PrintTo(Event event, std::ostream* out) {
  constexpr std::string_view names[] = {
      "begin",          "begin_issued",   "renew", "mark_effect", "complete",
      "fail_retryable", "fail_permanent", "doubt", "release",     "resolve_success",
      "resolve_failed", "resolve_retry",  "issue"};
  *out << names[static_cast<std::size_t>(event)];
}

inline void PrintTo(Answer answer, std::ostream* out) {
  constexpr std::string_view names[] = {"acquired",  "in_progress", "completed", "failed",
                                        "uncertain", "stored",      "lost"};
  *out << names[static_cast<std::size_t>(answer)];
}

inline void PrintTo(const Transition& transition, std::ostream* out) {
  constexpr std::string_view fences[] = {"kept", "first", "next"};
  constexpr std::string_view leases[] = {"kept", "started", "cleared"};
  *out << "{to ";
  PrintTo(transition.to, out);
  *out << ", answer ";
  PrintTo(transition.answer, out);
  *out << ", fence " << fences[static_cast<std::size_t>(transition.fence)] << ", owner "
       << (transition.owner == OwnerStep::caller ? "the caller" : "kept") << ", lease "
       << leases[static_cast<std::size_t>(transition.lease)] << '}';
}

}  // namespace v0
}  // namespace idempotency
