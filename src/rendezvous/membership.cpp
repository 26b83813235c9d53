#include "src/rendezvous/membership.hpp"

namespace weft::internal {

Membership::Membership(std::shared_ptr<AcceptDispatcher> dispatcher, const net::Identity& identity,
                       std::shared_ptr<Control> control, std::unique_ptr<RootRendezvous> root)
    : dispatcher_(std::move(dispatcher)), identity_(identity), root_(std::move(root)), control_(std::move(control)) {
    dispatcher_->listener().register_identity(identity_);
}

Membership::~Membership() {
    if (control_) Control::leave(std::move(control_));
    // Slow hosts may still receive the rank table.
    if (root_) RootRendezvous::keep(std::move(root_), identity_.name);
    RootRendezvous::release(identity_.name);
    dispatcher_->listener().unregister_identity(identity_.name);
}

void Membership::report_failure() {
    if (control_) control_->report_failure();
}

}  // namespace weft::internal
