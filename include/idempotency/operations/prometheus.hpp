#pragma once

#include <prometheus/collectable.h>
#include <prometheus/registry.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/observer.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

/// How metrics are named and cut.
struct PrometheusOptions {
  /// Labels that every metric of this observer carries, such as {"service", "payments"}.
  std::map<std::string, std::string> labels = {};
  /// Upper bounds of the histograms' buckets, in seconds, rising.
  std::vector<double> buckets = {0.000'1, 0.000'25, 0.000'5, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                 0.05,    0.1,      0.25,    0.5,   1.0,    2.5,   5.0,  10.0};
  /// Business types that get time series of their own; later ones share the type "other". Types must not be made from input.
  std::size_t most_types = 100;
  /// Business types whose counters are there, at 0, before anything has happened to them, so that `increase()` sees the first
  /// event. The others' begin with the first event of their type. At most `most_types`.
  std::vector<std::string> types = {};
};

/// An observer that counts and times for Prometheus, in a registry of the application's (prometheus-cpp).
///
/// Metrics, after Prometheus' naming rules (base units, `_total`, https://prometheus.io/docs/practices/naming/):
/// - `idempotency_runs_total{type, outcome}`: calls of `run` by `RunStatus`. Duplicates are outcomes, not errors. Calls that end
///   with an exception are not here: see `handler_exceptions` and `store_errors`.
/// - `idempotency_run_duration_seconds{type}`, `idempotency_handler_duration_seconds{type}`,
///   `idempotency_wait_duration_seconds{type}` (for another call with the same key): histograms.
/// - `idempotency_handler_exceptions_total{type, disposition}`.
/// - `idempotency_store_call_duration_seconds{call}`: histogram of answered calls.
/// - `idempotency_store_errors_total{call, code}`: failed attempts by `Errc`.
/// - `idempotency_lease_renewals_total{type}`, `idempotency_leases_lost_total{type}`.
/// - `idempotency_settled_behind_total{type, outcome}`: results that were recorded after `run` had returned, or not.
/// - `idempotency_resolved_total{type, verdict}`, `idempotency_hazards_total`.
/// - `idempotency_breaker_state{breaker, state}`: 1 for the state that a `BreakerStore` is in, 0 for the others.
///
/// Keys are never labels: they are without bound, and may be personal data.
///
/// Store errors by the usual codes are there at 0 from the start; exceptions and what is settled behind with their type.
///
/// Errors: `Errc::invalid_argument` for buckets that do not rise, more `types` than `most_types`, a label that is no label's name or is one of those above,
/// or a null registry; and for a registry that holds a metric of these names with another kind.
/// Thread safety: all members may be called concurrently.
/// Lifetime: must outlive the guards that it observes; keeps the registry.
class PrometheusObserver final : public Observer {
 public:
  explicit PrometheusObserver(std::shared_ptr<prometheus::Registry> registry,
                              PrometheusOptions options = {});
  ~PrometheusObserver() override;

  void on_finished(const Key& key, RunStatus status,
                   std::chrono::nanoseconds total) noexcept override;
  void on_handler_ended(const Key& key, std::chrono::nanoseconds took) noexcept override;
  void on_waited(const Key& key, std::chrono::nanoseconds waited) noexcept override;
  void on_store_answered(const Key& key, StoreCall call,
                         std::chrono::nanoseconds took) noexcept override;
  void on_handler_threw(const Key& key, std::string_view disposition) noexcept override;
  void on_store_error(const Key& key, StoreCall call, const Error& error,
                      std::uint32_t attempt) noexcept override;
  void on_lease_renewed(const Key& key, std::uint64_t fence) noexcept override;
  void on_lease_lost(const Key& key, std::uint64_t fence) noexcept override;
  void on_settled_behind(const Key& key, std::string_view outcome) noexcept override;
  void on_hazard(std::string_view what) noexcept override;
  void on_breaker_changed(std::string_view name, BreakerState state) noexcept override;
  void on_resolved(const Key& key, std::string_view verdict) noexcept override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Counts a store's records at a scrape: `idempotency_records{state}` and `idempotency_record_bytes`.
///
/// Counting reads the whole table or key space, so the last count answers until it is `interval` old. A store that cannot be
/// asked leaves the records out and sets `idempotency_records_up` to 0, so that an alert can tell "none" from "not known".
///
/// Errors: `Errc::invalid_argument` for a negative interval.
/// Thread safety: `Collect` may be called concurrently.
/// Lifetime: borrows the store. A `prometheus::Exposer` keeps a weak reference only: hold on to it.
class PrometheusRecords final : public prometheus::Collectable {
 public:
  template <AdminStore StoreT>
  explicit PrometheusRecords(StoreT& store,
                             std::chrono::milliseconds interval = std::chrono::minutes{1},
                             const std::map<std::string, std::string>& labels = {})
      : PrometheusRecords([&store] { return store.statistics(); }, interval, labels) {}
  ~PrometheusRecords() override;

  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  PrometheusRecords(std::function<StoreStatistics()> count, std::chrono::milliseconds interval,
                    const std::map<std::string, std::string>& labels);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace idempotency
