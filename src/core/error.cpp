#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {

std::string_view to_string(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_key:
      return "invalid_key";
    case Errc::missing_key:
      return "missing_key";
    case Errc::invalid_fingerprint:
      return "invalid_fingerprint";
    case Errc::unknown_fingerprint_scheme:
      return "unknown_fingerprint_scheme";
    case Errc::invalid_policy:
      return "invalid_policy";
    case Errc::invalid_argument:
      return "invalid_argument";
    case Errc::store_unavailable:
      return "store_unavailable";
    case Errc::store_reply_lost:
      return "store_reply_lost";
    case Errc::store_busy:
      return "store_busy";
    case Errc::store_full:
      return "store_full";
    case Errc::store_refused:
      return "store_refused";
    case Errc::store_corrupt:
      return "store_corrupt";
    case Errc::too_large:
      return "too_large";
    case Errc::used_after_fork:
      return "used_after_fork";
    case Errc::store_undecidable:
      return "store_undecidable";
    case Errc::nested_transaction:
      return "nested_transaction";
    case Errc::transaction_lost:
      return "transaction_lost";
    case Errc::commit_unknown:
      return "commit_unknown";
    case Errc::statement_failed:
      return "statement_failed";
    case Errc::codec_mismatch:
      return "codec_mismatch";
    case Errc::codec_corrupt:
      return "codec_corrupt";
    case Errc::codec_unencodable:
      return "codec_unencodable";
    case Errc::no_value:
      return "no_value";
    case Errc::lease_too_short:
      return "lease_too_short";
    case Errc::lease_lost:
      return "lease_lost";
    case Errc::permanent_failure:
      return "permanent_failure";
    case Errc::retryable_failure:
      return "retryable_failure";
    case Errc::outcome_unknown:
      return "outcome_unknown";
  }
  return "unknown";
}

}  // namespace v0
}  // namespace idempotency
