//! The control API over gRPC.

use super::{
    TAIL,
    caller::{Admitted, ControlApi},
    for_each_method,
};
use crate::api::{
    client::Client,
    grpc::BoxedResponse,
    pb::control::{self as messages, control_server},
};
use std::{future::ready, pin::Pin};
use tokio_stream::{Stream, StreamExt as _, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

type TailStream = Pin<Box<dyn Stream<Item = Result<messages::TailResponse, Status>> + Send>>;

/// The service.
pub(in crate::api) struct GrpcControl(pub(in crate::api) ControlApi);

impl GrpcControl {
    fn admit<M>(&self, request: &Request<M>, method: &str) -> Result<Admitted, Status> {
        Ok(self.0.admit(request.metadata().as_ref(), Client::of(request.extensions()), method)?)
    }

    fn open_tail(&self, request: Request<messages::TailRequest>) -> Result<Response<TailStream>, Status> {
        let admitted = self.admit(&request, TAIL)?;
        let (_, names) = Client::of(request.extensions());
        let recheck = self.0.recheck(&admitted, request.metadata().as_ref(), names);
        let responses = admitted.tail(recheck, request.into_inner())?;
        Ok(Response::new(Box::pin(ReceiverStream::new(responses).map(Ok))))
    }
}

macro_rules! service {
    ($($name:ident $handler:ident $request:ident $response:ident $role:ident;)*) => {
        impl GrpcControl {
            $(fn $handler(&self, request: Request<messages::$request>) -> BoxedResponse<'_, messages::$response> {
                Box::pin(async move {
                    let admitted = self.admit(&request, stringify!($name))?;
                    Ok(Response::new(admitted.perform(request.into_inner()).await?))
                })
            })*
        }

        impl control_server::Control for GrpcControl {
            $(fn $handler<'s, 'f>(
                &'s self,
                request: Request<messages::$request>,
            ) -> BoxedResponse<'f, messages::$response>
            where
                's: 'f,
            {
                // The method of the type itself.
                self.$handler(request)
            })*

            type TailStream = TailStream;

            fn tail<'s, 'f>(&'s self, request: Request<messages::TailRequest>) -> BoxedResponse<'f, TailStream>
            where
                's: 'f,
            {
                Box::pin(ready(self.open_tail(request)))
            }
        }
    };
}
for_each_method!(service);
