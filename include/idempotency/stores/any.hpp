#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "idempotency/detail/ports.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {

/// What operators can do with a store whose type is not known; see `AdminStore`.
class AnyAdminStore {
 public:
  AnyAdminStore() = default;
  AnyAdminStore(const AnyAdminStore&) = delete;
  AnyAdminStore& operator=(const AnyAdminStore&) = delete;

  [[nodiscard]] virtual RecordPage list(const RecordFilter& filter, const std::string& cursor,
                                        std::size_t limit) = 0;
  [[nodiscard]] virtual WriteOutcome resolve(const Record& seen, const Resolution& resolution) = 0;
  virtual std::size_t purge(std::size_t limit) = 0;
  [[nodiscard]] virtual StoreStatistics statistics() = 0;

 protected:
  ~AnyAdminStore() = default;
};

namespace detail {

/// A store behind `AnyStore`, owned or borrowed.
class StoreBox {
 public:
  StoreBox() = default;
  StoreBox(const StoreBox&) = delete;
  StoreBox& operator=(const StoreBox&) = delete;
  virtual ~StoreBox() = default;
  [[nodiscard]] virtual StorePort& port() noexcept = 0;
  [[nodiscard]] virtual AnyAdminStore* admin() noexcept = 0;
};

template <AdminStore StoreT>
class AdminOf final : public AnyAdminStore {
 public:
  explicit AdminOf(StoreT& store) noexcept : store_(&store) {}
  RecordPage list(const RecordFilter& filter, const std::string& cursor,
                  std::size_t limit) override {
    return store_->list(filter, cursor, limit);
  }
  WriteOutcome resolve(const Record& seen, const Resolution& resolution) override {
    return store_->resolve(seen, resolution);
  }
  std::size_t purge(std::size_t limit) override { return store_->purge(limit); }
  StoreStatistics statistics() override { return store_->statistics(); }

 private:
  StoreT* store_;
};

/// Stands in where a store is no `AdminStore`.
struct NoAdmin {
  template <class StoreT>
  explicit NoAdmin(StoreT& /*store*/) noexcept {}
};

template <class StoreT>
struct AdminSelection {
  using type = NoAdmin;
};
template <AdminStore StoreT>
struct AdminSelection<StoreT> {
  using type = AdminOf<StoreT>;
};

template <class StoreT>
class BorrowedStore : public StoreBox {
 public:
  explicit BorrowedStore(StoreT& store) noexcept : port_(store), admin_(store) {}
  [[nodiscard]] StorePort& port() noexcept override { return port_; }
  [[nodiscard]] AnyAdminStore* admin() noexcept override {
    if constexpr (AdminStore<StoreT>) {
      return &admin_;
    } else {
      return nullptr;
    }
  }

 private:
  StorePortOf<StoreT> port_;
  typename AdminSelection<StoreT>::type admin_;
};

/// Keeps the store apart, so that it is there before what refers to it and gone after.
template <class StoreT>
struct StoreKeeper {
  template <class... Arguments>
  explicit StoreKeeper(Arguments&&... arguments) : kept(std::forward<Arguments>(arguments)...) {}
  StoreT kept;
};

template <class StoreT>
class OwnedStore final : private StoreKeeper<StoreT>, public BorrowedStore<StoreT> {
 public:
  template <class... Arguments>
  explicit OwnedStore(Arguments&&... arguments)
      : StoreKeeper<StoreT>(std::forward<Arguments>(arguments)...),
        BorrowedStore<StoreT>(StoreKeeper<StoreT>::kept) {}
};

}  // namespace detail

/// A store chosen at run time.
///
/// It owns the store (`AnyStore(std::in_place_type<RedisStore>, options)`) or borrows it (`AnyStore(store)`), and
/// has the meaning, errors and thread safety of the one behind it. A call costs one virtual call more. `admin()` tells whether
/// operators can work with it. Transactions need the store's own type.
///
/// Thread safety: all members may be called concurrently.
/// Lifetime: does not move, so that guards can borrow it; a borrowed store must outlive it.
///
/// Example: `AnyStore store = open_store(address); IdempotencyGuard guard{store};`
class AnyStore {
 public:
  template <class StoreT>
    requires(Store<StoreT> && !std::same_as<StoreT, AnyStore>)
  explicit AnyStore(StoreT& borrowed)
      : box_(std::make_unique<detail::BorrowedStore<StoreT>>(borrowed)) {}
  template <class StoreT>
    requires(Store<StoreT> && !std::same_as<StoreT, AnyStore>)
  explicit AnyStore(const StoreT&& temporary) = delete;
  template <Store StoreT, class... Arguments>
  explicit AnyStore(std::in_place_type_t<StoreT> /*type*/, Arguments&&... arguments)
      : box_(std::make_unique<detail::OwnedStore<StoreT>>(std::forward<Arguments>(arguments)...)) {}
  AnyStore(const AnyStore&) = delete;
  AnyStore& operator=(const AnyStore&) = delete;

  [[nodiscard]] BeginOutcome begin(const BeginRequest& request) {
    return box_->port().begin(request);
  }
  /// One exchange where the store behind it can do so (`begins_many()`); otherwise nothing is begun, and each has to be made by itself.
  [[nodiscard]] std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests) {
    return box_->port().begin_many(requests);
  }
  [[nodiscard]] bool begins_many() const noexcept { return box_->port().begins_many(); }
  /// Errors: also `Errc::store_refused` where the store behind it is no `IssuingStore` (`issues()`).
  [[nodiscard]] WriteOutcome issue(const IssueRequest& request) {
    return box_->port().issue(request);
  }
  [[nodiscard]] bool issues() const noexcept { return box_->port().issues(); }
  [[nodiscard]] WriteOutcome complete(const Key& key, const Ownership& by,
                                      const Completion& completion) {
    return box_->port().complete(key, by, completion);
  }
  [[nodiscard]] WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                                  std::chrono::milliseconds retention) {
    return box_->port().fail(key, by, failure, retention);
  }
  [[nodiscard]] WriteOutcome doubt(const Key& key, const Ownership& by) {
    return box_->port().doubt(key, by);
  }
  [[nodiscard]] WriteOutcome mark_effect(const Key& key, const Ownership& by) {
    return box_->port().mark_effect(key, by);
  }
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by,
                                   std::chrono::milliseconds lease) {
    return box_->port().renew(key, by, lease);
  }
  /// One exchange where the store behind it can do so (`batches()`), one by one otherwise.
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals) {
    return box_->port().renew_many(renewals);
  }
  [[nodiscard]] bool batches() const noexcept { return box_->port().batches(); }
  ReleaseOutcome release(const Key& key, const Ownership& by,
                         std::chrono::milliseconds retention) noexcept {
    return box_->port().release(key, by, retention);
  }
  [[nodiscard]] std::optional<Record> find(const Key& key) { return box_->port().find(key); }

  /// Null when the store behind it is no `AdminStore`.
  [[nodiscard]] AnyAdminStore* admin() noexcept { return box_->admin(); }

 private:
  std::unique_ptr<detail::StoreBox> box_;
};
static_assert(BatchStore<AnyStore>);
static_assert(BatchBeginStore<AnyStore>);
static_assert(IssuingStore<AnyStore>);

}  // namespace v0
}  // namespace idempotency
