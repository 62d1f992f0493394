// Device, stream and event of torch's own interfaces.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <memory>

#include "client/connection/state.h"

namespace eat {

// An event that was recorded on a device's one stream. The question for it is asked at the first query or wait.
struct RemoteEvent {
  uint32_t number = 0;
  Device* device = nullptr;
  std::shared_ptr<Ticket> ticket;
  uint32_t work = 0;   // a collective that it stands for, instead of what was asked of the device: together.h
  uint32_t after = 0;  // the connection's newest question when it was recorded: an answer to a later one says that it is reached
};

void record_event(RemoteEvent& event);
bool query_event(RemoteEvent& event);
double wait_event(RemoteEvent& event);  // milliseconds since the session began
void drop_event(RemoteEvent& event);
uint32_t new_event_number();

// This thread's current stream of the device stands for a collective; 0: it is the device's own.
void use_work_stream(int device, uint32_t work);

void register_guard();

}  // namespace eat
