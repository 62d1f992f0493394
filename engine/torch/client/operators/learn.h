// The first uses of a signature: by the meta kernel, by the server's answer, or by both when they must agree.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "encode.h"

namespace eat {

enum class Learned { TOLD, ANSWERED };

// The signature is not in the table. TOLD: it is now, and the server knows it (the encoder may have changed: `out=` of another
// size is resized here). ANSWERED: the server was asked, and its results stand on the stack. Raises the operator's errors.
Learned learn(const c10::OperatorHandle& op, const OperatorInfo& info, Encoder& encoded, std::vector<c10::IValue>* stack);

// Asks the server and waits; results on the stack, and what they were in `results` unless nullptr. False when the call is no pattern
// for the next one: a written argument got another size, or it warned.
bool ask(const OperatorInfo& info, Encoder& encoded, std::vector<c10::IValue>* stack, Results* results);

// Appends FLAGS when a global setting of torch changed since the last call. server.connection.order is held.
void put_changed_flags(Server& server, Writer& message);

}  // namespace eat
