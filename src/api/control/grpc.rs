//! The control API over gRPC.

use super::{TAIL, caller::ControlApi, for_each_method};
use crate::api::{
    grpc::BoxedResponse,
    pb::control::{self as messages, control_server},
    routed_peer::RoutedPeer,
};
use std::{future::ready, pin::Pin};
use tidegate_operations::control::Caller;
use tokio_stream::{Stream, StreamExt as _, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

type TailStream = Pin<Box<dyn Stream<Item = Result<messages::TailResponse, Status>> + Send>>;

/// The service.
pub(in crate::api) struct GrpcControl(pub(in crate::api) ControlApi);

impl GrpcControl {
    fn admit<M>(&self, request: &Request<M>, method: &str) -> Result<Caller, Status> {
        let peer = request.extensions().get::<RoutedPeer>();
        let (peer, names) = peer.map_or(("", &[][..]), |RoutedPeer(peer, names)| (&**peer, &**names));
        let headers = request.metadata().clone().into_headers();
        Ok(self.0.admit(&headers, (peer, names), method)?)
    }

    fn open_tail(&self, request: Request<messages::TailRequest>) -> Result<Response<TailStream>, Status> {
        let caller = self.admit(&request, TAIL)?;
        let names = request.extensions().get::<RoutedPeer>().map_or(&[][..], |RoutedPeer(_, names)| &**names);
        let recheck = self.0.recheck(&caller, &request.metadata().clone().into_headers(), names);
        let responses = self.0.tail(recheck, request.into_inner())?;
        Ok(Response::new(Box::pin(ReceiverStream::new(responses).map(Ok))))
    }
}

macro_rules! service {
    ($($name:ident $handler:ident $request:ident $response:ident $role:ident;)*) => {
        impl GrpcControl {
            $(fn $handler(&self, request: Request<messages::$request>) -> BoxedResponse<'_, messages::$response> {
                Box::pin(async move {
                    let caller = self.admit(&request, stringify!($name))?;
                    Ok(Response::new(self.0.perform(&caller, request.into_inner()).await?))
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
