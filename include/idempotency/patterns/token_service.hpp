#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "idempotency/clock.hpp"
#include "idempotency/operation.hpp"
#include "idempotency/patterns/token_signer.hpp"
#include "idempotency/policy.hpp"
#include "idempotency/run_result.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

/// How a `TokenService` works.
struct TokenServiceOptions {
  /// No token lives longer. The policies of the purposes must keep their records at least as long.
  std::chrono::milliseconds longest_lifetime{std::chrono::minutes{15}};
  /// By which tokens end that are signed, and by which an old stored one is told from an unknown one; null: the system's.
  const Clock* clock = nullptr;
};

/// A token as a client brings it, and what is known of the client from elsewhere.
struct PresentedToken {
  std::string token;
  std::string purpose;  ///< what this place accepts tokens for: the business type of the record
  std::string subject = {};  ///< whom it was issued to: an account, a session
  /// What the request means; see `Operation`.
  std::optional<Fingerprint> fingerprint = std::nullopt;
  std::string trace = {};
  PolicyOverride policy = {};
};

/// How a run under a token ended. Where the token was refused `status()` is `RunStatus::not_issued`, and `verdict()` says why.
template <class T>
class [[nodiscard]] TokenResult : public RunResult<T> {
 public:
  TokenResult(RunResult<T> result, TokenVerdict verdict)
      : RunResult<T>(std::move(result)), verdict_(verdict) {}

  /// `good` also for a token whose time is over, when it was used in time and its record answered.
  [[nodiscard]] TokenVerdict verdict() const noexcept { return verdict_; }

 private:
  TokenVerdict verdict_;
};

namespace detail {

/// Makes and reads the tokens of one kind.
class TokenKind {
 public:
  TokenKind() = default;
  TokenKind(const TokenKind&) = delete;
  TokenKind& operator=(const TokenKind&) = delete;
  virtual ~TokenKind() = default;

  [[nodiscard]] virtual std::string issue(std::string_view purpose, std::string_view subject,
                                          std::chrono::milliseconds ttl, Timestamp now) = 0;
  [[nodiscard]] virtual TokenReading look(const PresentedToken& presented, Timestamp now) const = 0;
  /// Which records a token of this kind may make or take.
  [[nodiscard]] virtual Admission admission(TokenVerdict verdict) const noexcept = 0;
};

/// `issue` of a store whose type is not known.
class KeyIssuer {
 public:
  KeyIssuer() = default;
  KeyIssuer(const KeyIssuer&) = delete;
  KeyIssuer& operator=(const KeyIssuer&) = delete;
  virtual ~KeyIssuer() = default;
  virtual WriteOutcome issue(const IssueRequest& request) = 0;
};

template <IssuingStore StoreT>
class KeyIssuerOf final : public KeyIssuer {
 public:
  explicit KeyIssuerOf(StoreT& store) noexcept : store_(&store) {}
  WriteOutcome issue(const IssueRequest& request) override { return store_->issue(request); }

 private:
  StoreT* store_;
};

[[nodiscard]] std::unique_ptr<TokenKind> stored_tokens(std::unique_ptr<KeyIssuer> issuer);
[[nodiscard]] std::unique_ptr<TokenKind> signed_tokens(TokenSigner signer);

}  // namespace detail

/// One-time tokens for submissions: the token is the key, so that a second submission gets the first one's result.
///
/// Two kinds behind one interface. Stored tokens (made with a store): a record waits in the state `issued`, and
/// taking the token and beginning the operation is one atomic step of the store. Signed ones (made with a `TokenSigner`): they cost no
/// store call to issue and cannot be forged; the first use begins the record. Either way a process that dies after the token
/// was taken loses nothing: the record is one like any other, and the policy says what becomes of it.
///
/// The record is asked first, the time second: a retry after the token's end still gets the recorded result, and a token that
/// was not used in time makes no record. A token that is refused never makes one.
///
/// Of a stored token whose record is gone nobody can say more than stands in its text, which is not signed: an invented one may be
/// called `expired`, `wrong_purpose` or `foreign_subject` as well as `unknown`. It is refused all the same.
///
/// It also issues idempotency keys to clients that have none of their own.
///
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows the store and the clock. Stored tokens are for guards over that store, or over the same records.
///
/// Example: see `examples/13_one_time_token.cpp`.
class TokenService {
 public:
  /// Stored tokens.
  ///
  /// Errors: `Errc::invalid_argument` for a lifetime that is none.
  template <IssuingStore StoreT>
  explicit TokenService(StoreT& store, const TokenServiceOptions& options = {})
      : TokenService(detail::stored_tokens(std::make_unique<detail::KeyIssuerOf<StoreT>>(store)),
                     options) {}
  template <IssuingStore StoreT>
  explicit TokenService(const StoreT&& store, const TokenServiceOptions& options = {}) = delete;
  /// Signed tokens. Errors: the same.
  explicit TokenService(TokenSigner signer, const TokenServiceOptions& options = {})
      : TokenService(detail::signed_tokens(std::move(signer)), options) {}

  /// A new token: text of letters, digits, `-` and `_`, at most `TokenSigner::longest_token`.
  ///
  /// `purpose`: a business type, as in a `Key`; `subject`: whom it is for, any bytes; `ttl`: how long it may be used.
  ///
  /// Errors: `Errc::invalid_argument` for a ttl below 1 ms or above the options' longest, `Errc::invalid_key` for a purpose that
  /// is no business type; those of the store, and then another call may issue another token.
  [[nodiscard]] std::string issue(std::string_view purpose, std::string_view subject,
                                  std::chrono::milliseconds ttl);

  /// `guard.run` under the token as the key.
  ///
  /// Errors: those of `run`; `Errc::invalid_argument` when the guard's policy for this purpose forgets results sooner than tokens
  /// end (these, and a signed one that another service made to last longer, with 10 s for clocks that differ), before anything is asked.
  template <class Guard, class Handler>
  auto run(Guard& guard, const PresentedToken& presented, Handler&& handler) {
    return under(guard, presented, [&](Operation operation) {
      return guard.run(std::move(operation), std::forward<Handler>(handler));
    });
  }
  /// `guard.run_in_transaction` under the token as the key: the token is used, the effect and the result recorded in one commit.
  ///
  /// Errors: the same.
  template <class Guard, class Handler>
  auto run_in_transaction(Guard& guard, const PresentedToken& presented, Handler&& handler) {
    return under(guard, presented, [&](Operation operation) {
      return guard.run_in_transaction(std::move(operation), std::forward<Handler>(handler));
    });
  }

 private:
  struct Admitted {
    TokenVerdict verdict = TokenVerdict::unknown;
    std::optional<Operation> operation;       ///< nothing: refused without asking the store
    std::chrono::milliseconds usable_for{0};  ///< without a record of it, which is signed ones only
  };

  TokenService(std::unique_ptr<detail::TokenKind> kind, const TokenServiceOptions& options);
  [[nodiscard]] Timestamp now() const;
  [[nodiscard]] Admitted admit(const PresentedToken& presented) const;
  void check_retention(const Policy& policy, std::chrono::milliseconds usable_for) const;

  template <class Guard, class Run>
  auto under(Guard& guard, const PresentedToken& presented, Run run_it) {
    using Result = decltype(run_it(std::declval<Operation>()));
    Admitted admitted = admit(presented);
    if (!admitted.operation) {
      detail::RunReport refused;
      refused.status = RunStatus::not_issued;
      return with_verdict(Result(std::move(refused), std::nullopt), admitted.verdict);
    }
    check_retention(guard.policy_of(*admitted.operation), admitted.usable_for);
    Result result = run_it(std::move(*admitted.operation));
    const bool accepted = result.status() != RunStatus::not_issued;
    const bool is_late = admitted.verdict == TokenVerdict::expired;
    const TokenVerdict refusal = is_late ? TokenVerdict::expired : TokenVerdict::unknown;
    return with_verdict(std::move(result), accepted ? TokenVerdict::good : refusal);
  }
  template <class T>
  static TokenResult<T> with_verdict(RunResult<T> result, TokenVerdict verdict) {
    return TokenResult<T>(std::move(result), verdict);
  }

  std::unique_ptr<detail::TokenKind> kind_;
  std::chrono::milliseconds longest_lifetime_;
  const Clock* clock_;
};

}  // namespace v0
}  // namespace idempotency
